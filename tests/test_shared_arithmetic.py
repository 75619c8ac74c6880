"""A mistake in arithmetic that several parts share is caught by something that does not use it.

The reference, the count-level systems, the symbolic memory and Z3 all ask `model.counts`, so that a
mistake there looks alike to all of them. Two things do not ask it: the definitions below, which
count tokens one by one, and the invariants.
"""

import inspect
import itertools
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

import pytest

from kvproof.model.arithmetic import counts

FUNCTIONS = {
    name: function
    for name, function in vars(counts).items()
    if inspect.isfunction(function) and function.__module__ == counts.__name__
}


def blocks(tokens: Iterable[int], size: int) -> set[int]:
    """The blocks that hold these tokens."""
    return {token // size for token in tokens}


def seen(at: int, window: int) -> set[int]:
    """The tokens before the one at `at` that it attends to under a window."""
    return {p for p in range(at) if at - p < window}


def needed(at: int, window: int, size: int, eagle_drop_blocks: int = 0) -> set[int]:
    """The blocks that must match for a hit of `at` tokens, and so many after it."""
    return blocks(seen(at, window), size) | set(range(at // size, at // size + eagle_drop_blocks))


def last_end(known: int, unit: int, eagle_drop_tokens: int) -> int:
    """The last multiple of a unit that leaves a token to compute, and the proof to match."""
    ends = range(0, known + 1, unit)
    return max((end for end in ends if known - end >= max(eagle_drop_tokens, 1)), default=0)


def some_hit(block: int, window: int, size: int, unit: int, eagle_drop_tokens: int) -> bool:
    ends = range(unit, (block + 2) * (size + unit) + window, unit)
    return any(block in needed(end, window, size, eagle_drop_tokens) for end in ends)


def kept(
    block: int,
    window: int,
    size: int,
    unit: int,
    interval: int,
    prompt: int,
    shared_prefix_boundary: int,
) -> bool:
    ends = {last_end(prompt, unit, 0), shared_prefix_boundary}
    ends |= set(range(0, (block + 2) * size + window + interval, interval)) if interval else set()
    return any(block in needed(end, window, size) for end in ends)


def legal_chunk(
    start: int,
    tokens: int,
    prefill_end: int,
    known: int,
    size: int,
    limit: int,
    shared_prefix_boundary: int,
) -> int:
    """The longest chunk that ends on a boundary, at a stop or with the prefill, and runs past no
    stop; or that is a piece of a block no step can cross."""
    if start >= prefill_end:
        return tokens
    boundaries = [b for b in range(0, known + size + 1, size) if b > start]
    stops = {last_end(known, size, 0), shared_prefix_boundary} | (
        {boundaries[0]} if start % size else set()
    )
    piece = size > limit and boundaries[0] > start + tokens
    ends = range(start + 1, start + tokens + 1)
    may = [e for e in ends if e in stops or e in boundaries or e >= prefill_end or piece]
    return max((e - start for e in may if not any(start < s < e for s in stops)), default=0)


def pairs(first: int, slots: int, other_first: int, other_slots: int) -> tuple[int, ...]:
    ours, theirs = range(first, first + slots), range(other_first, other_first + other_slots)
    both = sorted(set(ours) & set(theirs))
    if not both:
        at = max(first, other_first)
        return at - first, at - first, at - other_first, at - other_first
    return (
        ours.index(both[0]),
        ours.index(both[-1]) + 1,
        theirs.index(both[0]),
        theirs.index(both[-1]) + 1,
    )


def touched(window: int, size: int) -> int:
    """The most blocks that so many tokens in a row are in, wherever they begin."""
    return max(len(blocks(range(at, at + window), size)) for at in range(size))


def table_of_a_hit(hit: int, skipped: int) -> list[str | None]:
    """The blocks of a table after a hit, for tokens a connector brings: found, or left out."""
    prompt = "abcdefghijkl"
    cache = {prompt[: end + 1]: f"block {end}" for end in range(hit)}
    return [cache.get(prompt[: end + 1]) for end in range(max(hit, skipped))]


BLOCK, SIZE, TOKENS, FLAG = range(7), range(1, 5), range(9), (False, True)


class Plain(NamedTuple):
    """A definition that counts: the answers it allows, the numbers to try, and what the function
    is given for these numbers."""

    allowed: Callable[..., Collection[Any]]
    numbers: tuple[Iterable[Any], ...]
    given: Callable[..., tuple[Any, ...]] = lambda *numbers: numbers


PLAIN: dict[str, Plain] = {
    "blocks_for_tokens": Plain(lambda t, s: [len(blocks(range(t), s))], (TOKENS, SIZE)),
    "full_blocks": Plain(
        lambda t, s: [sum(all(b * s + i < t for i in range(s)) for b in range(t + 1))],
        (TOKENS, SIZE),
    ),
    "settled_tokens": Plain(
        lambda settled, f: [len(set(range(settled + f)) - set(range(settled, settled + f)))],
        (TOKENS, TOKENS),
        lambda settled, f: (settled + f, f),
    ),
    "tokens_skipped_by_window": Plain(lambda c, w: [c - len(seen(c, w))], (TOKENS, SIZE)),
    "tokens_skipped_by_state": Plain(lambda c: [len(range(c)[:-1])], (TOKENS,)),
    "window_blocks_for_hit": Plain(lambda w, s: [len(needed(w * s, w, s))], (SIZE, SIZE)),
    "serves_a_hit": Plain(
        lambda b, w, s, per: [some_hit(b, w, s, per * s, 0)],
        (BLOCK, SIZE, SIZE, SIZE),
        lambda b, w, s, per: (b, w, s, per * s),
    ),
    "needed_at": Plain(
        lambda b, w, s, end, eagle_drop_blocks: [b in needed(end * s, w, s, eagle_drop_blocks)],
        (BLOCK, SIZE, SIZE, BLOCK, (0, 1)),
        lambda b, w, s, end, eagle_drop_blocks: (b, w, s, end * s, eagle_drop_blocks),
    ),
    "is_retained": Plain(
        lambda b, w, s, per, apart, n, j: [kept(b, w, s, per * s, apart * per * s, n, j * per * s)],
        (range(5), (1, 3, 4), (1, 2), (1, 2), (0, 1, 3), (1, 4, 7), (0, 2)),
        lambda b, w, s, per, apart, n, j: (b, w, s, per * s, apart * per * s, n, j * per * s),
    ),
    "longest_hit_tokens": Plain(
        lambda n, unit, eagle_drop_tokens: [last_end(n, unit, eagle_drop_tokens)],
        (range(1, 12), SIZE, (0, 1, 2)),
    ),
    "tokens_to_cache": Plain(lambda e, n: [len(set(range(e)) & set(range(n)))], (TOKENS, TOKENS)),
    "cacheable_tokens": Plain(
        lambda n, unit, p: [
            sum(any(at < end + p for end in range(unit, n + 1, unit)) for at in range(n))
        ],
        (TOKENS, SIZE, (0, 1, 2)),
    ),
    "hashed_tokens": Plain(
        lambda t, n, ahead: [sum(at + ahead < n for at in range(t))],
        (TOKENS, range(1, 9), (0, 1)),
    ),
    "computed_after_drafts": Plain(
        lambda end, n, a: [len(set(range(end)) & (set(range(n)) | set(range(n, n + a))))],
        (TOKENS, TOKENS, (0, 1, 2)),
    ),
    "tokens_loaded_by_decode": Plain(lambda n, b: [len(range(n)[: n - b]) or n], (SIZE, (0, 1))),
    "output_tokens": Plain(lambda n, p: [len(range(n)[:1]) if p else n], (SIZE, FLAG)),
    "attention_blocks_offered": Plain(lambda t, s: [len(blocks(range(t), s))], (TOKENS, SIZE)),
    "state_is_used": Plain(
        lambda own, left: [any(b >= left for b in range(own)[-1:])], (BLOCK, BLOCK)
    ),
    "blocks_from_queue": Plain(
        lambda new, idle: [len([*range(new), *range(idle)])], (BLOCK, BLOCK)
    ),
    "prompt_after_truncation": Plain(
        lambda n, b, cut: [n if cut else len(range(n)[: n - b]) or n],
        (SIZE, (0, 1), FLAG),
    ),
    "blocks_counted_after_hit": Plain(
        lambda hit, skipped: [sum(b is not None for b in table_of_a_hit(hit, skipped))],
        (BLOCK, BLOCK),
    ),
    "align_chunk": Plain(
        lambda at, n, more, left, s, limit, j: [
            legal_chunk(at, n, at + n + more, at + n + more + left, s, limit, j * s)
        ],
        (range(5), range(1, 6), range(3), range(2), SIZE, (5, 6), (0, 1)),
        lambda at, n, more, left, s, limit, j: (
            (at, n, at + n + more, at + n + more + left, s, limit, j * s)
        ),
    ),
    "tail_chunk": Plain(
        lambda at, n, boundary, tail: [
            max(
                e - at for e in range(at + 1, at + n + 1) if not (at < tail < e and boundary < tail)
            )
        ],
        (range(5), range(1, 5), range(5), range(8)),
    ),
    "copies_of_hit": Plain(
        lambda hit, s: [len(blocks(range(hit), s) & {hit // s})], (TOKENS, SIZE)
    ),
    "attention_blocks_predicted": Plain(
        lambda end, s, held, skip: [len(blocks(range(end), s) - set(range(max(held, skip))))],
        (TOKENS, SIZE, BLOCK, BLOCK),
    ),
    "state_blocks_predicted": Plain(
        lambda end, s, held, scratch, fresh: [
            len([*range(held, len(blocks(range(end), s)) + scratch)][: 1 + fresh])
        ],
        (TOKENS, SIZE, BLOCK, (0, 2), (0, 2)),
    ),
    "trim": Plain(lambda *lists: [pairs(*lists)], (BLOCK, BLOCK, BLOCK, BLOCK)),
    "logical_block": Plain(
        lambda k, ratio: [[(b, part) for b in range(k + 1) for part in range(ratio)][k]],
        (TOKENS, SIZE),
    ),
    "state_slots_moved": Plain(lambda slots: [len(range(slots)[-1:])], (TOKENS,)),
    "tokens_offered": Plain(
        lambda _computed, settled, n: [len(set(range(settled)) & set(range(n)))],
        (TOKENS, TOKENS, TOKENS),
    ),
    "held_tokens_loaded": Plain(
        lambda held, n, whole: [
            max((h for h in range(held + 1) if (h <= n if whole else held == h < n)), default=0)
        ],
        (TOKENS, TOKENS, FLAG),
    ),
    "resumed_at": Plain(
        lambda loaded, n: [min(set(range(n)) - set(range(loaded)) | {n - 1})],
        (TOKENS, SIZE),
    ),
    "needed_from_load": Plain(
        lambda loaded, n: [min(set(range(n)) - set(range(loaded)) | {n - 1})],
        (TOKENS, SIZE),
    ),
    "window_blocks_offered": Plain(
        lambda w, s: range(touched(w, s), touched(w, s) + 2),
        (SIZE, SIZE),
    ),
}
"""For each function the answers a count of tokens allows, and numbers to ask it of."""


def test_each_function_has_a_definition() -> None:
    assert set(PLAIN) == set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_what_its_definition_counts(name: str) -> None:
    plain, function = PLAIN[name], FUNCTIONS[name]
    for numbers in itertools.product(*plain.numbers):
        given = plain.given(*numbers)
        assert function(*given) in plain.allowed(*numbers), given
