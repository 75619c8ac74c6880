"""The cached-block counter: its value after a hit, and the blocks that are cached from there
(vllm#42547)."""

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num, all_of, both, implies
from kvproof.model.arithmetic.ranges import Natural, Positive
from kvproof.proofs.obligation import Claim, obligation


def _skipped_blocks(total: Num, window: Num, block_size: Num) -> tuple[Num, ...]:
    """Leading null blocks at `total` computed tokens of a full, a window and a Mamba group."""
    tokens = (
        0,
        counts.tokens_skipped_by_window(total, window),
        counts.tokens_skipped_by_state(total),
    )
    return tuple(counts.full_blocks(t, block_size) for t in tokens)


@obligation(
    "after a hit and external tokens the counter counts blocks of the local hit only",
    origin="vllm#42547",
    killed_by="null_blocks_counted_as_cached",
)
def counter_is_the_local_hit(
    hit_blocks: Natural, external: Natural, block_size: Positive, window: Positive
) -> Claim:
    """So the counter never exceeds the full blocks of all tokens."""
    total = hit_blocks * block_size + external
    parts = []
    for skipped in _skipped_blocks(total, window, block_size):
        num_cached_blocks = counts.blocks_counted_after_hit(hit_blocks, skipped)
        parts += [
            num_cached_blocks <= hit_blocks,
            num_cached_blocks <= counts.full_blocks(total, block_size),
        ]
    return Claim(all_of(*parts))


@obligation(
    "caching from the counter on after a load covers each full block outside the hit exactly once",
    origin="vllm#42547",
    killed_by="null_blocks_counted_as_cached",
)
def every_full_block_cached_once(
    hit_blocks: Natural,
    external: Natural,
    block_size: Positive,
    window: Positive,
    position: Natural,
) -> Claim:
    """A block position is either in the hit, or at or after the counter."""
    total = hit_blocks * block_size + external
    in_hit = position < hit_blocks
    parts = []
    for skipped in _skipped_blocks(total, window, block_size):
        cached_now = position >= counts.blocks_counted_after_hit(hit_blocks, skipped)
        parts.append(cached_now != in_hit)
    return Claim(all_of(*parts), given=position < counts.full_blocks(total, block_size))


@obligation(
    "the longest hit has as many whole units as leave a token to compute",
    origin="KVCacheManager.get_computed_blocks",
    killed_by="hit_covers_whole_prompt",
)
def longest_hit_leaves_a_token(known: Positive, hit_unit: Positive) -> Claim:
    """A hit may not cover the whole prompt: the last token's logits must be computed."""
    hit = counts.longest_hit_tokens(known, hit_unit)
    whole = counts.full_blocks(hit, hit_unit) * hit_unit == hit
    return Claim(all_of(whole, hit >= 0, hit < known, known <= hit + hit_unit))


@obligation(
    "a block is hashed if and only if some sliding-window hit needs it",
    origin="SlidingWindowManager.reachable_block_mask",
    killed_by="mask_hides_needed_blocks",
)
def hashed_blocks_serve_hits(
    block: Natural,
    units: Positive,
    window: Positive,
    block_size: Positive,
    blocks_per_unit: Positive,
) -> Claim:
    """A hit of any number of `units` needs the blocks before its end that its window reaches. If
    any hit needs a block, the first hit that ends after the block needs it."""
    served = counts.serves_a_hit(block, window, block_size, blocks_per_unit * block_size)
    need = counts.window_blocks_for_hit(window, block_size)

    def needed_at(hit_units: Num) -> Num:
        end = hit_units * blocks_per_unit
        return both(end - need <= block, block < end)

    first_after = counts.full_blocks(block, blocks_per_unit) + 1
    return Claim(both(implies(needed_at(units), served), implies(served, needed_at(first_after))))
