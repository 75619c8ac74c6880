"""Blocks of a group: a request takes as many as were predicted, freed blocks of windows and states
are not needed, and needed ones are offered."""

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import all_of, any_of, both, either, max_
from kvproof.model.arithmetic.ranges import Bit, Natural, Positive
from kvproof.proofs.obligation import Claim, obligation


@obligation(
    "a window skips exactly the tokens that the next token does not attend to",
    origin="SlidingWindowManager.get_num_skipped_tokens",
    killed_by="window_freed_too_soon",
)
def skipped_is_unattended(position: Natural, computed: Natural, window: Positive) -> Claim:
    """The next token stands at `computed` and attends to the `window` positions that end there."""
    attended = position > computed - window
    skipped = position < counts.tokens_skipped_by_window(computed, window)
    return Claim(skipped != attended, given=position <= computed)


@obligation(
    "a block behind the window holds no token that the next token attends to",
    origin="SlidingWindowManager.get_num_skipped_tokens",
    killed_by="window_freed_too_soon",
)
def skipped_block_is_unattended(
    position: Natural, computed: Natural, window: Positive, block_size: Positive
) -> Claim:
    """Only whole blocks are freed."""
    skipped = counts.full_blocks(counts.tokens_skipped_by_window(computed, window), block_size)
    attended = both(computed - window < position, position <= computed)
    return Claim(counts.full_blocks(position, block_size) >= skipped, given=attended)


@obligation(
    "a window hit needs exactly the blocks that hold the tokens the next token attends to",
    origin="SlidingWindowManager.find_longest_cache_hit",
    killed_by="window_hit_one_block_short",
)
def window_hit_is_enough(boundary: Natural, window: Positive, block_size: Positive) -> Claim:
    """`boundary` is the hit in blocks."""
    need = counts.window_blocks_for_hit(window, block_size)
    first_token = counts.tokens_skipped_by_window(boundary * block_size, window)
    enough = max_(boundary - need, 0) * block_size <= first_token
    fewer = (boundary - need + 1) * block_size > first_token
    return Claim(both(enough, any_of(fewer, need == 0, need > boundary)))


@obligation(
    "the blocks P offers of a window hold all tokens that D's next token attends to",
    origin="NixlBaseConnectorScheduler.get_exchange_clipped_blocks",
    killed_by="window_offer_one_block_short",
)
def window_offer_is_enough(computed: Positive, window: Positive, block_size: Positive) -> Claim:
    """This also holds if the computed tokens end inside a block."""
    blocks = counts.blocks_for_tokens(computed, block_size)
    first_block = max_(blocks - counts.window_blocks_offered(window, block_size), 0)
    needed = counts.tokens_skipped_by_window(computed, window)
    return Claim(first_block * block_size <= needed)


@obligation(
    "in a load both sides keep all tokens that D's first computed token attends to",
    origin="kvproof, vLLM 0.32.0",
    killed_by="window_of_loaded_tokens",
)
def window_of_a_load_is_enough(
    position: Natural, prompt: Positive, backoff: Bit, window: Positive, block_size: Positive
) -> Claim:
    """D always computes the last prompt token, to sample from it; if D has loaded that token too,
    its window begins one token earlier than the loaded tokens suggest."""
    loaded = counts.tokens_loaded_by_decode(prompt, backoff)
    needed = counts.needed_from_load(loaded, prompt)
    skipped = counts.full_blocks(counts.tokens_skipped_by_window(needed, window), block_size)
    resumed = counts.resumed_at(loaded, prompt)
    attended = both(resumed - window < position, position <= resumed)
    return Claim(counts.full_blocks(position, block_size) >= skipped, given=attended)


@obligation(
    "the block of the last computed token, which holds the running state, is never freed",
    origin="MambaManager.get_num_skipped_tokens",
    killed_by="running_state_freed",
)
def running_state_is_kept(computed: Positive, block_size: Positive) -> Claim:
    """All blocks before it are freed: one state is enough."""
    skipped = counts.full_blocks(counts.tokens_skipped_by_state(computed), block_size)
    blocks = counts.blocks_for_tokens(computed, block_size)
    return Claim(all_of(skipped < blocks, skipped == blocks - 1))


@obligation(
    "a running request takes exactly the blocks between what it holds and what it needs",
    origin="SingleTypeKVCacheManager.get_num_blocks_to_allocate",
    killed_by="growth_rounds_down",
)
def growth_is_exact(start: Natural, tokens: Natural, block_size: Positive) -> Claim:
    """Then its blocks hold all its tokens, and its last block is not empty."""
    held = counts.blocks_for_tokens(start, block_size)
    end = start + tokens
    taken = counts.attention_blocks_predicted(end, block_size, held, 0)
    blocks = held + taken
    return Claim(
        all_of(
            taken >= 0,
            taken == counts.blocks_for_tokens(end, block_size) - held,
            end <= blocks * block_size,
            blocks * block_size < end + block_size,
        )
    )


@obligation(
    "a running request takes no block while its last one has room",
    origin="SingleTypeKVCacheManager.get_num_blocks_to_allocate",
    killed_by="growth_rounds_down",
)
def room_is_used_first(start: Natural, tokens: Natural, block_size: Positive) -> Claim:
    """Room is what the held blocks have beyond the computed tokens."""
    held = counts.blocks_for_tokens(start, block_size)
    taken = counts.attention_blocks_predicted(start + tokens, block_size, held, 0)
    return Claim((taken == 0) == (tokens <= held * block_size - start))


@obligation(
    "a Mamba block table takes one block if it must grow, otherwise none, and then fits",
    origin="MambaManager.get_num_blocks_to_allocate",
    killed_by="placeholders_predicted",
)
def state_growth_is_one(end: Positive, held_blocks: Natural, block_size: Positive) -> Claim:
    """Null placeholders fill the table up to the running state, whose block is the last."""
    taken = counts.state_blocks_predicted(end, block_size, held_blocks)
    blocks = counts.blocks_for_tokens(end, block_size)
    fits = either(held_blocks >= blocks, max_(held_blocks, blocks - 1) + taken == blocks)
    return Claim(all_of(taken >= 0, taken <= 1, (taken == 1) == (held_blocks < blocks), fits))
