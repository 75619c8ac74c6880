"""The order of workloads: those that reach what was changed come first."""

from collections.abc import Collection, Mapping, Sequence


def ordered(
    names: Sequence[str], reached: Mapping[str, frozenset[str]], changed: Collection[str]
) -> list[str]:
    return sorted(names, key=lambda n: -len(reached[n].intersection(changed)))
