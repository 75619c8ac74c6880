"""Chooses what a reproducer asserts: the difference between base and head that is nearest to the
finding."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from kvproof.invariants.guards_of_requests import batch
from kvproof.invariants.registry import CHECKS
from kvproof.model.because import Reason
from kvproof.model.events import Event, Schedule
from kvproof.model.finding import Finding

Path = tuple[str, ...]
"""The keys that lead to a value of what is shown: the variable of an engine, and the names of the
template's `shown`."""

RIGHT: dict[str, Any] = {"free and held": [], "wrong references": [], "wrong predictions": []}
"""The values that every vLLM without defects shows."""

WHOLE = ("scheduled",), ("read",), ("all",)
"""The values that are compared as a whole."""

VAGUE = {
    *("table", "references", "neither free nor held", "free blocks", "free queue"),
    "cached prefixes",
}
"""The values that say little about a cause, because they differ wherever anything differs."""


class Observed(Struct, frozen=True, forbid_unknown_fields=True):
    """The values that a vLLM shows after each statement, by engine, up to the statement that
    `raised`, if one did. `error` says why no values could be read."""

    seen: tuple[dict[str, Any], ...] = ()
    raised: str = ""
    error: str = ""


class Claim(NamedTuple):
    """The assertion at the end of a reproducer: after the statement of this index, the value at a
    path is that of base. Without a path, the statement must not raise."""

    after: int
    path: Path = ()
    expected: Any = None


def claims(finding: Finding, engine: str, base: Observed, head: Observed) -> list[Claim]:
    """The claims that hold on base and not on head, the nearest to the finding first. `engine` is
    the variable of the engine that the finding is about."""
    dies = bool(head.raised) and len(base.seen) > len(head.seen)
    raises = [Claim(len(head.seen))] * dies
    if finding.invariant == "engine_survives" and dies:
        return raises
    check = CHECKS.get(finding.invariant)
    hangs = check is not None and check.kind == "eventually"
    found: list[tuple[tuple[Any, ...], Claim]] = []
    for after, (on_base, on_head) in enumerate(zip(base.seen, head.seen, strict=False)):
        at_end = hangs and after == len(base.seen) - 1
        for rank, (path, theirs, ours) in enumerate(_differing((), on_base, on_head)):
            if theirs == RIGHT.get(path[-1], theirs) and not _raises(theirs):
                waits = at_end and path[-1] == "requests" and len(ours) > len(theirs)
                wrong = path[-1] in RIGHT or waits
                order = (not wrong, *_order(finding, path[0] == engine, path, ours))
                found.append(((*order, after, rank), Claim(after, path, theirs)))
    return [claim for _, claim in sorted(found, key=lambda one: one[0])] + raises


def _differing(path: Path, base: Any, head: Any) -> Iterator[tuple[Path, Any, Any]]:
    """The paths at which base and head show different values, with both values."""
    if isinstance(base, dict) and isinstance(head, dict) and path[-1:] not in WHOLE:
        for key in filter(head.__contains__, base):
            yield from _differing((*path, key), base[key], head[key])
    elif base != head:
        yield path, base, head


def _raises(value: Any) -> bool:
    """Whether the value stands for an exception of vLLM."""
    return isinstance(value, str) and value.startswith("raises ")


def _order(finding: Finding, same_engine: bool, path: Path, ours: Any) -> tuple[Any, ...]:
    """The sort key: what is about the same engine, request, group and block, and has a value that
    the finding names. A pull request may change others on purpose. Then comes the earliest, because
    what differs first is the cause."""
    about = finding.about
    named = _plain(ours) in [*_values(finding.reasons)]
    others = {
        "request": about.request,
        "group": "" if about.group is None else str(about.group),
        "block": str(about.block or ""),
    }
    apart = 4 * bool(about.engine and not same_engine)
    for key in path:
        kind, _, which = key.partition(" ")
        if kind in others and which.isalnum():
            apart += bool(others[kind]) and others[kind] != which
            apart += kind == "block" and not others[kind]
    return path[-1] in VAGUE and not named, apart, not named


def _values(reasons: Sequence[Reason]) -> Iterator[Any]:
    """The values of facts."""
    for each in reasons:
        for value in each.facts.values():
            if isinstance(value, Reason):
                yield from _values([value])
            else:
                yield _plain(value)


def _plain(value: Any) -> Any:
    """A value in which equal lists and tuples are equal, and no truth is a number."""
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return repr(value) if isinstance(value, bool) else value


def departs(events: Sequence[Event], engines: Mapping[str, str], head: Observed) -> str:
    """How a run of the statements departs from the trace; empty where it follows the trace.
    `engines` has the variable of each engine."""
    if not any(isinstance(each, Schedule) and each.chose for each in events):
        return ""
    for number, (event, shown) in enumerate(zip(events, head.seen, strict=False), 1):
        if not isinstance(event, Schedule):
            continue
        found, wanted = shown[engines[event.engine]]["scheduled"], batch(event)
        if found != wanted:
            return (
                f"the statements do not follow the trace: in step {number} vLLM schedules {found}, "
                f"the trace has {dict(wanted)}"
            )
    return ""
