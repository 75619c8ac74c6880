"""kvproof's arithmetic in the form of vLLM's functions: the numbers that go in, the numbers that
come out, and the cases that vLLM never reaches. `counts` does all the computing."""

from kvproof.model.arithmetic import counts
from tests.functions import transfers


def grown(end: int, block_size: int, held_blocks: int) -> int:
    return counts.attention_blocks_predicted(end, block_size, held_blocks, 0)


def fits(end: int, block_size: int, held_blocks: int) -> bool:
    """A table is never longer than its tokens need, because draft tokens are not modelled here."""
    return held_blocks <= counts.blocks_for_tokens(end, block_size)


def one_way(loaded: int, computing: int, **_: int) -> bool:
    """A request is admitted to compute, or to load without computing."""
    return (loaded == 0) != (computing == 0)


def window_admission(
    window: int,
    block_size: int,
    hit_blocks: int,
    loaded: int,
    computing: int,
    prompt: int,
    idle: int,
) -> int:
    computed = hit_blocks * block_size + loaded
    needed = counts.needed_from_load(computed, prompt) if loaded else computed
    skipped = counts.full_blocks(counts.tokens_skipped_by_window(needed, window), block_size)
    new = counts.attention_blocks_predicted(computed + computing, block_size, hit_blocks, skipped)
    return new + (max(hit_blocks - skipped, 0) if idle else 0)


def within_prompt(
    block_size: int, hit_blocks: int, loaded: int, computing: int, prompt: int, **_: int
) -> bool:
    """A local hit leaves at least one prompt token; a load may leave none."""
    hit = hit_blocks * block_size
    return one_way(loaded, computing) and hit < prompt and hit + loaded + computing <= prompt


def state_admission(
    block_size: int, hit_blocks: int, loaded: int, computing: int, idle: int
) -> int:
    computed = hit_blocks * block_size + loaded
    skipped = counts.full_blocks(counts.tokens_skipped_by_state(computed), block_size)
    used = counts.state_is_used(hit_blocks, skipped)
    new = counts.state_blocks_predicted(computed + computing, block_size, hit_blocks)
    return new + int(idle == 1 and hit_blocks >= 1 and used)


def num_cached_blocks(block_size: int, hit_blocks: int, loaded: int) -> int:
    computed = hit_blocks * block_size + loaded
    skipped = counts.full_blocks(counts.tokens_skipped_by_state(computed), block_size)
    return counts.blocks_counted_after_hit(hit_blocks, skipped)


def loads_the_whole_prompt(
    block_size: int, hit_blocks: int, loaded: int, prompt: int, **_: int
) -> bool:
    return loaded > 0 and hit_blocks * block_size + loaded == prompt


def loads_beyond_a_state(hit_blocks: int, loaded: int, idle: int, **_: int) -> bool:
    return hit_blocks > 0 and loaded > 0 and idle == 1


def loads_a_block(block_size: int, loaded: int, **_: int) -> bool:
    """Whether the load has a null block before the block with its state."""
    return loaded > block_size


def aligned_chunk(
    start: int, tokens: int, left: int, resumed: int, block_size: int, room: int, boundary: int
) -> tuple[int, int, int]:
    known = start + tokens + left
    chunk = counts.align_chunk(
        start=start,
        tokens=tokens,
        prefill_end=known - resumed,
        known=known,
        block_size=block_size,
        chunk_limit=tokens + room,
        shared_prefix_boundary=boundary * block_size,
    )
    return chunk, chunk, chunk


def has_a_prompt(start: int, tokens: int, left: int, resumed: int, **_: int) -> bool:
    return start + tokens + left > resumed


def truncated(
    prompt: int,
    backoff: int,
    times: int,
    embeds: int,  # noqa: ARG001
) -> tuple[int, int, int]:
    length = prompt
    for _ in range(times):
        length = counts.prompt_after_truncation(length, backoff, length < prompt)
    return length, length, length


def last(blocks: int, kept: int) -> tuple[int, int]:
    """The position of the first of the last `kept` blocks of a list (0 for none), and their
    number."""
    kept = min(blocks, kept)
    return (blocks - kept if kept else 0), kept


def window_offer(blocks: int, window: int, block_size: int) -> tuple[int, int]:
    return last(blocks, counts.window_blocks_offered(window, block_size))


def state_offer(blocks: int) -> tuple[int, int]:
    kept = counts.state_slots_moved(blocks)
    return (blocks - kept if kept else 0), kept


def paired(tokens: int, hit_blocks: int, local_ratio: int, remote_ratio: int) -> tuple[int, ...]:
    first = hit_blocks * local_ratio
    local = counts.blocks_for_tokens(tokens, local_ratio) * local_ratio - first
    remote = counts.blocks_for_tokens(tokens, remote_ratio) * remote_ratio
    a, b, c, d = counts.trim(first, local, 0, remote, local_ratio == remote_ratio)
    return (a, b, c, d) if b > a else (0, 0, 0, 0)


def dies(**_: int) -> tuple[int, ...]:
    """An assertion of vLLM fails."""
    return (transfers.DIES,) * 4


def longer_here(tokens: int, hit_blocks: int, local_ratio: int, remote_ratio: int) -> bool:
    """Whether ratios are unequal and D's list is longer than P's."""
    fresh = -(-tokens // local_ratio) * local_ratio - hit_blocks * local_ratio
    return local_ratio != remote_ratio and fresh > -(-tokens // remote_ratio) * remote_ratio


def longer_there(tokens: int, hit_blocks: int, local_ratio: int, remote_ratio: int) -> bool:
    """Whether ratios are unequal and P's list is as long as D's, or longer."""
    longer = longer_here(tokens, hit_blocks, local_ratio, remote_ratio)
    return local_ratio != remote_ratio and not longer


def accepted_beside_state(
    tokens: int, hit_blocks: int, local_ratio: int, remote_ratio: int
) -> bool:
    """vLLM's handshake accepts unequal ratios beside Mamba only where D caches no prefixes."""
    loads = something_to_load(tokens, hit_blocks, local_ratio)
    return loads and (local_ratio == remote_ratio or hit_blocks == 0)


def something_to_load(tokens: int, hit_blocks: int, local_ratio: int, **_: int) -> bool:
    """Whether D's hit leaves something to read."""
    return hit_blocks * local_ratio < tokens


def retained(
    block: int,
    window: int,
    block_size: int,
    units: int,
    apart: int,
    prompt: int,
    shared_prefix_boundary: int,
) -> bool:
    """A shared prefix boundary is rounded down to a position where a hit can end."""
    unit = units * block_size
    whole = counts.round_down(shared_prefix_boundary, unit)
    return counts.is_retained(block, window, block_size, unit, apart * unit, prompt, whole)
