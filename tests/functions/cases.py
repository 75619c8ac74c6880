"""Numbers for the inputs of a rule, drawn by a seed from those that vLLM can get."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from kvproof.model.arithmetic.ranges import Range, at_least, between

Numbers = dict[str, int]

DRAWS = 30_000
CASES_MAX = 150
"""So many cases are kept of each kind."""


SIZES = frozenset(
    (
        *("window", "block_size", "units", "local_ratio", "remote_ratio", "ratio"),
        *("prompt", "known", "tokens", "end"),
    )
)
"""The numbers that are 1 or more; others are 0 or more."""

FLAGS = frozenset(("idle", "backoff", "embeds", "resumed"))
"""Those that are 0 or 1."""


def of_name(name: str) -> Range:
    """The range of the number of this name."""
    return between(0, 1) if name in FLAGS else at_least(int(name in SIZES))


def always(**_numbers: Any) -> bool:
    """No assumption."""
    return True


def cases_of(
    ranges: Mapping[str, Range],
    bound: int,
    given: Callable[..., bool],
    conditions: Sequence[Callable[..., bool]],
) -> list[Numbers]:
    """Different numbers in these ranges that make `given` true, none of them more than `bound`
    above the lowest of its range. There are numbers of each kind that is drawn: a kind is which of
    the conditions are met. Half of the draws are small, because boundaries are close together."""
    chooses = Random(0)
    kinds: dict[tuple[bool, ...], dict[tuple[int, ...], Numbers]] = {}
    for _ in range(DRAWS):
        within = chooses.choice((bound, min(bound, 3)))
        numbers = {name: _drawn(each, within, chooses) for name, each in ranges.items()}
        if given(**numbers):
            kind = kinds.setdefault(tuple(bool(each(**numbers)) for each in conditions), {})
            if len(kind) < CASES_MAX:
                kind[tuple(numbers.values())] = numbers
    return [numbers for kind in kinds.values() for numbers in kind.values()]


def _drawn(within: Range, above: int, chooses: Random) -> int:
    highest = within.lowest + above
    return chooses.randint(
        within.lowest, highest if within.highest is None else min(highest, within.highest)
    )
