"""The arithmetic against the simplest count there is: sets of positions, and search."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvproof.model.arithmetic import counts

small = st.integers(0, 24)
size = st.integers(1, 9)


def blocks_of(tokens: range, block_size: int) -> set[int]:
    return {token // block_size for token in tokens}


@given(small, size)
def test_blocks_hold_all_tokens(tokens: int, block_size: int) -> None:
    assert counts.blocks_for_tokens(tokens, block_size) == len(blocks_of(range(tokens), block_size))


@given(small, size)
def test_full_blocks_are_those_with_every_slot_taken(tokens: int, block_size: int) -> None:
    slots = [[b * block_size + s for s in range(block_size)] for b in range(tokens + 1)]
    full = [block for block in slots if all(slot < tokens for slot in block)]
    assert counts.full_blocks(tokens, block_size) == len(full)


def attended(computed: int, window: int) -> set[int]:
    """Positions the token at `computed` attends to."""
    return {p for p in range(computed + 1) if computed - p < window}


@given(small, size)
def test_window_skips_what_nobody_attends_to(computed: int, window: int) -> None:
    skipped = set(range(counts.tokens_skipped_by_window(computed, window)))
    assert skipped == set(range(computed)) - attended(computed, window)


@given(small)
def test_a_state_needs_the_last_token_only(computed: int) -> None:
    skipped = set(range(counts.tokens_skipped_by_state(computed)))
    assert set(range(computed)) - skipped == set(range(computed)[-1:])


@given(size, size)
def test_window_hit_blocks(window: int, block_size: int) -> None:
    boundary = window * block_size  # far enough from the start
    needed = {p for p in attended(boundary, window) if p < boundary}
    blocks = {p // block_size for p in needed}
    assert counts.window_blocks_for_hit(window, block_size) == len(blocks)


@given(small, size, st.integers(1, 4), st.integers(1, 4))
def test_block_serves_some_hit(block: int, window: int, block_size: int, per_unit: int) -> None:
    unit = block_size * per_unit
    ends = range(unit, (block + per_unit + 1) * block_size + 1, unit)
    needed = {p // block_size for end in ends for p in attended(end, window) if p < end}
    assert counts.serves_a_hit(block, window, block_size, unit) == (block in needed)


@given(small, size, st.integers(1, 4), st.integers(1, 4), small, st.integers(0, 3), small)
def test_retained_blocks(
    block: int, window: int, block_size: int, per_unit: int, prompt: int, apart: int, parted: int
) -> None:
    unit = block_size * per_unit
    prompt, shared_prefix_boundary = prompt + 1, parted * unit
    far = block * block_size + unit * apart + window + 1
    ends = {max(range(0, prompt, unit)), shared_prefix_boundary}
    ends |= set(range(0, far, unit * apart)) if apart else set()
    needed = {p // block_size for end in ends for p in attended(end, window) if p < end}
    for end in ends:
        own = {p // block_size for p in attended(end, window) if p < end}
        assert counts.needed_at(block, window, block_size, end) == (block in own)
    retained = counts.is_retained(
        block, window, block_size, unit, apart * unit, prompt, shared_prefix_boundary
    )
    assert retained == (block in needed)
    dense = counts.serves_a_hit(block, window, block_size, unit)
    assert dense or not retained


@given(st.integers(1, 30), size)
def test_longest_hit(known: int, hit_unit: int) -> None:
    assert counts.longest_hit_tokens(known, hit_unit) == max(range(0, known, hit_unit))


@given(st.integers(1, 30), st.integers(0, 1), st.integers(1, 6))
def test_prompt_is_shortened_once(length: int, backoff: int, times: int) -> None:
    prompt = length
    for _ in range(times):
        prompt = counts.prompt_after_truncation(prompt, backoff, prompt < length)
    tokens = list(range(length))
    kept = tokens[:-1] if backoff and len(tokens) > 1 else tokens
    assert prompt == len(kept) == counts.tokens_loaded_by_decode(length, backoff)


@given(small, small)
def test_counter_after_a_hit(hit_blocks: int, skipped_blocks: int) -> None:
    cached = {position: f"block {position}" for position in range(hit_blocks)}
    table = [cached.get(position) for position in range(max(hit_blocks, skipped_blocks))]
    placeholders = table.count(None)
    num_cached_blocks = counts.blocks_counted_after_hit(hit_blocks, skipped_blocks)
    assert num_cached_blocks == len(table) - placeholders
    assert all(block is not None for block in table[:num_cached_blocks])


def longest_legal_chunk(
    start: int,
    tokens: int,
    prefill_end: int,
    known: int,
    block_size: int,
    chunk_limit: int,
    shared_prefix_boundary: int,
) -> int:
    """The largest legal chunk, found by trying every end.

    A chunk may stop at the first stop it meets: the boundary of the block it starts inside, the
    last boundary a later request can resume at, the junction. Else it must end on a boundary, or
    end the prefill, or be a piece of a block that no step can cross.
    """
    if start >= prefill_end:
        return tokens
    boundaries = [b for b in range(0, known + block_size + 1, block_size) if b > start]
    stops = {max(b for b in range(0, known, block_size)), shared_prefix_boundary}
    if start % block_size:
        stops.add(boundaries[0])
    legal = []
    for end in range(start + 1, start + tokens + 1):
        if any(start < stop < end for stop in stops):
            continue
        no_boundary = all(b > start + tokens for b in boundaries)
        piece = block_size > chunk_limit and no_boundary
        if end in stops or end in boundaries or end >= prefill_end or piece:
            legal.append(end - start)
    return max(legal, default=0)


@st.composite
def chunks(draw: st.DrawFn) -> tuple[int, ...]:
    """Arguments of `align_chunk` as the scheduler gives them: nothing beyond the known tokens or
    the budget, and a junction on a block boundary."""
    block_size, chunk_limit = draw(size), draw(size)
    known = draw(st.integers(1, 24))
    prefill_end = draw(st.integers(max(known - 4, 1), known))
    start = draw(st.integers(0, known - 1))
    tokens = draw(st.integers(1, min(known - start, chunk_limit)))
    shared_prefix_boundary = draw(st.integers(0, known // block_size)) * block_size
    return start, tokens, prefill_end, known, block_size, chunk_limit, shared_prefix_boundary


@given(chunks())
@example((0, 4, 4, 4, 4, 4, 0))
@example((0, 3, 9, 9, 4, 3, 0))
@example((2, 6, 9, 9, 4, 8, 0))
@settings(max_examples=400)
def test_align_chunk_is_the_longest_legal_one(chunk: tuple[int, ...]) -> None:
    assert counts.align_chunk(*chunk) == longest_legal_chunk(*chunk)


@given(chunks())
def test_align_chunk_leaves_its_own_result_alone(chunk: tuple[int, ...]) -> None:
    start, _, *rest = chunk
    left = counts.align_chunk(*chunk)
    assert counts.align_chunk(start, left, *rest) == left


@given(chunks(), st.integers(0, 9))
def test_a_larger_budget_never_gives_a_smaller_chunk(chunk: tuple[int, ...], more: int) -> None:
    start, tokens, end, known, block_size, limit, shared_prefix_boundary = chunk
    wider = min(tokens + more, known - start, limit)
    assert counts.align_chunk(*chunk) <= counts.align_chunk(
        start, wider, end, known, block_size, limit, shared_prefix_boundary
    )


@given(small, small, size, small)
def test_growth_predicts_the_missing_positions(
    held: int, end: int, block_size: int, skipped: int
) -> None:
    needed = blocks_of(range(end), block_size)
    there = set(range(held)) | set(range(skipped))
    predicted = counts.attention_blocks_predicted(end, block_size, held, skipped)
    assert predicted == len(needed - there)
    assert counts.state_blocks_predicted(end, block_size, held) == bool(needed - set(range(held)))


@given(small, small, small, small, st.booleans())
def test_trim_pairs_the_positions_in_both_lists(
    local_first: int, local_slots: int, remote_first: int, remote_slots: int, equal_ratios: bool
) -> None:
    local = list(range(local_first, local_first + local_slots))
    remote = list(range(remote_first, remote_first + remote_slots))
    a, b, c, d = counts.trim(local_first, local_slots, remote_first, remote_slots, equal_ratios)
    assert local[a:b] == remote[c:d] == sorted(set(local) & set(remote))


@given(small)
def test_one_state_slot_moves(slots: int) -> None:
    assert counts.state_slots_moved(slots) == len(list(range(slots))[-1:])


@given(st.integers(1, 30), st.integers(0, 1))
def test_decode_computes_what_it_has_not_loaded_and_the_last_token(
    prompt: int, backoff: int
) -> None:
    loaded = prompt - backoff
    to_compute = set(range(prompt)) - set(range(loaded)) | {prompt - 1}
    assert counts.resumed_at(loaded, prompt) == min(to_compute)
    assert counts.needed_from_load(loaded, prompt) == min(to_compute)


@given(small, size, size)
def test_offered_window_holds_what_the_next_token_needs(
    computed: int, window: int, block_size: int
) -> None:
    blocks = list(range(counts.blocks_for_tokens(computed, block_size)))
    offered = blocks[-counts.window_blocks_offered(window, block_size) :]
    needed = {p // block_size for p in attended(computed, window) if p < computed}
    assert needed <= set(offered)


@given(size, size)
def test_offered_window_wastes_one_block_at_most(window: int, block_size: int) -> None:
    touched = max(
        len(blocks_of(range(start, start + window), block_size)) for start in range(block_size)
    )
    assert counts.window_blocks_offered(window, block_size) - touched in (0, 1)


@given(small, size)
def test_a_kernel_block_is_a_part_of_one_logical_block(kernel_block: int, ratio: int) -> None:
    parts = [(block, part) for block in range(kernel_block + 1) for part in range(ratio)]
    assert counts.logical_block(kernel_block, ratio) == parts[kernel_block]
