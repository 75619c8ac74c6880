"""The order in which workloads are run: those that reach what changed come first."""

from collections.abc import Collection, Iterable, Mapping, Sequence

MODULE = "<module>"
CLASS = "<class "

Reached = Mapping[str, frozenset[str]]
"""The functions that each workload calls, by the name of the workload. A function is written as
`v1/request.py:Request.append`."""


def ordered(names: Sequence[str], reached: Reached, changed: Collection[str]) -> list[str]:
    """The workloads, those that reach changed functions first.

    Each function that any workload reaches is reached early: next comes the workload that reaches
    the most functions which no earlier one reached. After these come the others that reach some,
    those that reach the most first, and then the rest. Where two are equal, the given order stays.
    """
    reaches = {name: touched(reached.get(name, frozenset()), changed) for name in names}
    first = covering(names, reaches)
    left = [name for name in dict.fromkeys(names) if reaches[name] and name not in first]
    left.sort(key=lambda name: -len(reaches[name]))
    known = {*first, *left}
    return [*first, *left, *(name for name in dict.fromkeys(names) if name not in known)]


def covering(
    names: Sequence[str], has: Mapping[str, Collection[str]], known: Iterable[str] = ()
) -> list[str]:
    """Few of these names that have all that any has, but for what is `known`: each next one has the
    most that no earlier one has."""
    left, seen = list(dict.fromkeys(names)), {*known}
    found: list[str] = []
    while left:
        best = max(left, key=lambda name: len({*has[name]} - seen))
        if seen.issuperset(has[best]):
            break
        found.append(best)
        left.remove(best)
        seen.update(has[best])
    return found


def touched(called: Iterable[str], changed: Collection[str]) -> frozenset[str]:
    """The changed functions that a run reaches. The body of a class or of a module runs when it is
    imported, before the run: a run reaches it that calls a function of the same file."""
    functions = frozenset(called)
    files = {name.partition(":")[0] for name in functions}
    return frozenset(
        name
        for name in changed
        if name in functions or (_is_body(name) and name.partition(":")[0] in files)
    )


def _is_body(name: str) -> bool:
    return name.partition(":")[2].startswith((MODULE, CLASS))
