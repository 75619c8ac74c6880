"""kvproof's arithmetic in the form of vLLM's functions: the numbers that go in, the numbers that
come out, and the cases that vLLM never reaches. `counts` does all the computing."""

from typing import Any

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import (
    Num,
    Truth,
    all_of,
    both,
    ceil_div,
    either,
    if_,
    max_,
    min_,
    not_,
)
from tests.functions import transfers


def grown(end: Num, block_size: Num, held_blocks: Num) -> Num:
    return counts.attention_blocks_predicted(end, block_size, held_blocks, 0)


def fits(end: Num, block_size: Num, held_blocks: Num) -> Truth:
    """A table is never longer than its tokens need, because draft tokens are not modelled here."""
    return held_blocks <= counts.blocks_for_tokens(end, block_size)


def one_way(loaded: Num, computing: Num) -> Truth:
    """A request is admitted to compute, or to load without computing."""
    return either(both(loaded == 0, computing >= 1), both(loaded >= 1, computing == 0))


def window_admission(
    window: Num,
    block_size: Num,
    hit_blocks: Num,
    loaded: Num,
    computing: Num,
    prompt: Num,
    idle: Num,
) -> Num:
    computed = hit_blocks * block_size + loaded
    needed = if_(loaded > 0, counts.needed_from_load(computed, prompt), computed)
    skipped = counts.full_blocks(counts.tokens_skipped_by_window(needed, window), block_size)
    new = counts.attention_blocks_predicted(computed + computing, block_size, hit_blocks, skipped)
    return new + if_(idle == 1, max_(hit_blocks - skipped, 0), 0)


def within_prompt(
    block_size: Num, hit_blocks: Num, loaded: Num, computing: Num, prompt: Num, **_: Num
) -> Truth:
    """A local hit leaves at least one prompt token; a load may leave none."""
    hit = hit_blocks * block_size
    inside = both(hit < prompt, hit + loaded + computing <= prompt)
    return both(one_way(loaded, computing), inside)


def state_admission(
    block_size: Num, hit_blocks: Num, loaded: Num, computing: Num, idle: Num
) -> Num:
    computed = hit_blocks * block_size + loaded
    skipped = counts.full_blocks(counts.tokens_skipped_by_state(computed), block_size)
    used = counts.state_is_used(hit_blocks, skipped)
    new = counts.state_blocks_predicted(computed + computing, block_size, hit_blocks)
    return new + if_(all_of(idle == 1, hit_blocks >= 1, used), 1, 0)


def num_cached_blocks(block_size: Num, hit_blocks: Num, loaded: Num) -> Num:
    computed = hit_blocks * block_size + loaded
    skipped = counts.full_blocks(counts.tokens_skipped_by_state(computed), block_size)
    return counts.blocks_counted_after_hit(hit_blocks, skipped)


def loads_the_whole_prompt(
    block_size: Num, hit_blocks: Num, loaded: Num, prompt: Num, **_: Num
) -> Truth:
    return both(loaded > 0, hit_blocks * block_size + loaded == prompt)


def loads_beyond_a_state(hit_blocks: Num, loaded: Num, idle: Num, **_: Num) -> Truth:
    return all_of(hit_blocks > 0, loaded > 0, idle == 1)


def loads_a_block(block_size: Num, loaded: Num, **_: Num) -> Truth:
    """Whether the load has a null block before the block with its state."""
    return loaded > block_size


def aligned_chunk(
    start: Num, tokens: Num, left: Num, resumed: Num, block_size: Num, room: Num, boundary: Num
) -> tuple[Num, Num, Num]:
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


def has_a_prompt(start: Num, tokens: Num, left: Num, resumed: Num, **_: Num) -> Truth:
    return start + tokens + left > resumed


def resumed_to_its_last_token(
    start: Num, tokens: Num, left: Num, resumed: Num, block_size: Num, room: Num, **_: Num
) -> Truth:
    """A chunk of a resumed request ends before its last token, inside the block of its start."""
    inside = start == counts.round_down(start + tokens, block_size)
    return all_of(resumed == 1, left == 1, inside, block_size <= tokens + room)


def passes_two_boundaries(
    start: Num, tokens: Num, left: Num, resumed: Num, block_size: Num, **_: Num
) -> Truth:
    """A chunk begins inside the second block or later, and ends the prefill two blocks on."""
    whole = counts.round_down(start, block_size)
    begins = all_of(start > block_size, start > whole, resumed == 0, left == 0)
    return both(begins, start + tokens > whole + 2 * block_size)


def crosses_a_boundary_behind_its_prompt(
    start: Num, tokens: Num, left: Num, resumed: Num, block_size: Num, **_: Num
) -> Truth:
    """A chunk has the last token of a prompt and a sampled one, with a boundary between them."""
    both_tokens = all_of(resumed == 1, left == 0, tokens == 2)
    return both(both_tokens, start + 1 == counts.round_down(start + 1, block_size))


def truncated(
    prompt: Num,
    backoff: Num,
    times: Num,
    embeds: Num,  # noqa: ARG001
) -> tuple[Num, Num, Num]:
    length = prompt
    for time in (1, 2, 3):
        again = counts.prompt_after_truncation(length, backoff, length < prompt)
        length = if_(times >= time, again, length)
    return length, length, length


def last(blocks: Num, kept: Num) -> tuple[Num, Num]:
    """The position of the first of the last `kept` blocks of a list (0 for none), and their
    number."""
    kept = min_(blocks, kept)
    return if_(kept > 0, blocks - kept, 0), kept


def window_offer(blocks: Num, window: Num, block_size: Num) -> tuple[Num, Num]:
    return last(blocks, counts.window_blocks_offered(window, block_size))


def state_offer(blocks: Num) -> tuple[Num, Num]:
    kept = counts.state_slots_moved(blocks)
    return if_(kept > 0, blocks - kept, 0), kept


def paired(tokens: Num, hit_blocks: Num, local_ratio: Num, remote_ratio: Num) -> tuple[Any, ...]:
    first = hit_blocks * local_ratio
    local = counts.blocks_for_tokens(tokens, local_ratio) * local_ratio - first
    remote = counts.blocks_for_tokens(tokens, remote_ratio) * remote_ratio
    a, b, c, d = counts.trim(first, local, 0, remote, local_ratio == remote_ratio)
    return tuple(if_(b > a, part, 0) for part in (a, b, c, d))


def dies(**_: Num) -> tuple[Num, ...]:
    """An assertion of vLLM fails."""
    return (transfers.DIES,) * 4


def longer_here(tokens: Num, hit_blocks: Num, local_ratio: Num, remote_ratio: Num) -> Truth:
    """Whether ratios are unequal and D's list is longer than P's."""
    fresh = ceil_div(tokens, local_ratio) * local_ratio - hit_blocks * local_ratio
    longer = fresh > ceil_div(tokens, remote_ratio) * remote_ratio
    return both(longer, not_(local_ratio == remote_ratio))


def longer_there(tokens: Num, hit_blocks: Num, local_ratio: Num, remote_ratio: Num) -> Truth:
    """Whether ratios are unequal and P's list is as long as D's, or longer."""
    longer = longer_here(tokens, hit_blocks, local_ratio, remote_ratio)
    return both(not_(longer), not_(local_ratio == remote_ratio))


def accepted_beside_state(
    tokens: Num, hit_blocks: Num, local_ratio: Num, remote_ratio: Num
) -> Truth:
    """vLLM's handshake accepts unequal ratios beside Mamba only where D caches no prefixes."""
    loads = something_to_load(tokens, hit_blocks, local_ratio)
    return both(loads, either(local_ratio == remote_ratio, hit_blocks == 0))


def something_to_load(tokens: Num, hit_blocks: Num, local_ratio: Num, **_: Num) -> Truth:
    """Whether D's hit leaves something to read."""
    return hit_blocks * local_ratio < tokens


def retained(
    block: Num,
    window: Num,
    block_size: Num,
    units: Num,
    apart: Num,
    prompt: Num,
    shared_prefix_boundary: Num,
) -> Truth:
    """A shared prefix boundary is rounded down to a position where a hit can end."""
    unit = units * block_size
    whole = counts.round_down(shared_prefix_boundary, unit)
    return counts.is_retained(block, window, block_size, unit, apart * unit, prompt, whole)
