"""Two machines compared by what they break on the same workloads; and whether the run of a break of
base says anything about head.

It does where head takes the same events to the end of the run, the check had something to judge
there, and the requests that the break is about stand before the event that shows it as they do on
base: then the check had there what it judges. Where head dies earlier, or goes another way, that it
shows no break says nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kvproof.gate.difference.judged import Break, Key
from kvproof.gate.difference.record import Course, Stands
from kvproof.gate.difference.result import Result, pairs, severity
from kvproof.gate.difference.workload import LOOP, Engine
from kvproof.invariants.registry import CHECKS


class Results(dict[str, Result]):
    """The results of one machine by the name of the workload."""

    def add(self, results: Sequence[Result]) -> None:
        """Add results."""
        self.update({result.name: result for result in results})

    @property
    def keys_broken(self) -> set[Key]:
        """The keys of all breaks."""
        return {each.key for result in self.values() for each in result.breaks}


class Candidate(NamedTuple):
    """A break that one machine shows in a workload and the other does not."""

    workload: str
    found: Break


def only_on(these: Results, others: Results, names: Sequence[str]) -> list[Candidate]:
    """What the first machine breaks in these workloads, where the second could be driven and does
    not break the same: one candidate for each key and cluster, the shortest run. The most severe
    come first."""
    return _shortest(each for name in names for each in _only_in(name, these, others))


def of_each(these: Results, names: Sequence[str]) -> list[Candidate]:
    """What a machine breaks in these workloads, as `only_on` gives it."""
    return _shortest(Candidate(name, each) for name in names for each in these[name].breaks)


def _shortest(candidates: Iterable[Candidate]) -> list[Candidate]:
    kept: dict[tuple[Key, str], Candidate] = {}
    for candidate in candidates:
        where = candidate.found.key, candidate.found.cluster.name
        if where not in kept or _order(candidate.found) < _order(kept[where].found):
            kept[where] = candidate
    return sorted(kept.values(), key=lambda one: _order(one.found))


def _only_in(name: str, these: Results, others: Results) -> Iterator[Candidate]:
    """The same of one workload. Where the second machine has not driven some loops, it says nothing
    of what the first breaks in these alone."""
    ours, theirs = these.get(name), others.get(name)
    if ours is None or theirs is None or ours.reason or theirs.reason:
        return
    shown = theirs.keys
    taken = pairs(theirs, ours) if theirs.without_loops else ()
    for key, each in ours.keys.items():
        in_loop = bool(theirs.without_loops) and each.signature.event == LOOP
        if key not in shown and (not in_loop or any(each.need in p.new_on_head for p in taken)):
            yield Candidate(name, each)


def _order(found: Break) -> tuple[int, bool, int, Key]:
    """The most severe first; of equal severity one that no other break precedes, then the shortest
    run."""
    return severity(found), bool(found.after), found.length, found.key


def the_same(key: Key, result: Result) -> bool:
    """Whether a result shows this break, or breaks the same check for the same reason after another
    event."""
    return same(key, result) is not None


def same(key: Key, result: Result) -> Break | None:
    """The break of a result with this key, or else one of the same check for the same reason after
    another event."""
    shown = (*result.breaks, *result.excused)
    exact = (each for each in shown if each.key == key)
    like = (each for each in shown if alike(each.key, key))
    return next(exact, None) or next(like, None)


def on_head_alone(key: Key, base: Result, head: Result) -> Break | None:
    """The break of head with this key in a run that base takes without it. What has excuses is on
    head alone where it needs one that base does not need. Both results are of one run."""
    shown = same(key, head)
    if shown is None or base.reason:
        return None
    if not key.excuses:
        return None if the_same(key, base) else shown
    return shown if any(shown.need in pair.new_needs for pair in pairs(base, head)) else None


def dies_alike(key: Key, result: Result) -> bool:
    """Whether an engine dies in the same function, whatever the exception says: on the same
    stimuli, other words of an assertion are no other death."""
    return bool(key.death) and any(each.death == key.death for each in result.breaks)


def alike(one: Key, other: Key) -> bool:
    """Whether two breaks differ in the event, the shape and the promise at most: what one defect
    breaks may differ in all of these."""
    first, second = (_but_for_event(each)._replace(shape="", promise="") for each in (one, other))
    return first == second


def of_one_shape(key: Key, keys: Iterable[Key]) -> bool:
    """Whether one of these breaks is this one, whatever the event was."""
    return any(_but_for_event(each) == _but_for_event(key) for each in keys)


def _but_for_event(key: Key) -> Key:
    return key._replace(signature=key.signature._replace(event=""))


def parting(found: Break, base: Course, head: Course, parts_at: int | None = None) -> str:
    """How head leaves the run that shows a break on base, and from which event on, whose index is
    `parts_at`. Empty where head takes it to its end, and the check had the same to judge where base
    breaks it. Both courses are of the run of the break."""
    why = _why(found, base, head)
    where = f"from event {parts_at + 1} on, " if parts_at is not None else ""
    return where + why if why else ""


def _why(found: Break, base: Course, head: Course) -> str:
    check, in_core = found.signature.check, isinstance(found.plan, Engine)
    if head.dead:
        return f"head dies ({head.dead.splitlines()[0]})"
    if head.skipped:
        return f"{head.skipped} of its events are not possible on head"
    if not (head.ended or in_core):
        return "the run does not come to its end on head"
    at_the_end = found.plan is None and CHECKS[check].kind == "eventually"
    is_start = found.plan is None and not found.events  # head, which took the run, has started
    if check not in head.judged and not (at_the_end or is_start):
        return "the check has nothing to judge on head"
    if in_core or at_the_end:
        return ""
    ours, theirs = (_concerned(found, each) for each in (base, head))
    if ours == theirs:
        return ""
    engine, request = min(k for k in {*ours, *theirs} if ours.get(k) != theirs.get(k))
    there, here = (_state(side.get((engine, request))) for side in (theirs, ours))
    return f"head goes another way, {request} on {engine} is {there} and {here} on base"


def _concerned(found: Break, course: Course) -> dict[tuple[str, str], Stands]:
    """The requests that a break is about, where it shows: the one that its finding names, or all of
    its engine."""
    about = found.finding.about
    return {
        (each.engine, each.request): each
        for each in (course.left if found.drained else course.stands)
        if about.engine in ("", each.engine) and about.request in ("", each.request)
    }


def _state(one: Stands | None) -> str:
    if one is None:
        return "absent"
    return f"{one.status} {'with' if one.holds else 'without'} blocks"
