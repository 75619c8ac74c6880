"""Growth: a request takes as many blocks as were predicted."""

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import all_of, either, max_
from kvproof.model.arithmetic.ranges import Natural, Positive
from kvproof.proofs.obligation import Claim, obligation


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
