"""Whether the run of a break of base says anything about head.

It does where head takes the same events past the place and to the end of the run, and the requests
that the break is about stand at the place as they do on base: then the check had there what it
judges. Where head dies earlier, or goes another way, that it shows no break says nothing.
"""

from collections.abc import Iterable

from kvproof.gate.difference.course import Course, Stands
from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.workload import START, Engine
from kvproof.invariants.registry import CHECKS
from kvproof.model.because import About
from kvproof.model.events import Event, bare, describe, stimulus


def parting(found: Break, base: Course, head: Course) -> str:
    """The event at which head leaves the run that shows a break on base, and how. Empty where head
    takes it to its end, and the check had the same to judge at the place of the break. Both courses
    are of the run of the break."""
    if isinstance(found.plan, Engine):
        return _of_engine(found, head)
    if found.plan is not None:
        return _of_plan(found, base, head)
    wanted, last = found.events, len(found.events)
    for number, event in enumerate(wanted[: len(head.taken)]):
        if stimulus(event) != stimulus(head.taken[number]):
            return f"{_at(wanted, number)} is not possible on head"
    if head.dead:
        number = len(head.taken)
        when = _at(wanted, number - 1) if number <= last else f"after event {last} of {last}"
        return f"{when}: head dies ({_first_line(head.dead)})"
    if len(head.taken) < last:
        return f"{_at(wanted, len(head.taken))} is not possible on head"
    if not head.ended:
        return f"after event {last} of {last}: the run does not come to its end on head"
    if CHECKS[found.signature.check].kind != "eventually":
        ours, theirs = (_concerned(each.stands, found.finding.about) for each in (base, head))
        if ours != theirs:
            number = _first_other_choice(wanted, head.taken)
            return f"{_at(wanted, number)}: {_other(ours, theirs)} at event {last}"
    return ""


def _of_plan(found: Break, base: Course, head: Course) -> str:
    """The same for the plan of a connector. After its last action the engine is drained."""
    last = found.length + 1
    when = f"action {head.actions} of {last}"
    if head.dead:
        return f"{when}: head dies ({_first_line(head.dead)})"
    if not head.ended:
        return f"{when}: the run does not come to its end on head"
    if found.signature.check not in head.judged:
        return f"{when}: the check has nothing to judge on head"
    ours, theirs = (_concerned(each.stands, found.finding.about) for each in (base, head))
    if ours != theirs:
        return f"{when}: {_other(ours, theirs)} at action {found.place + 1}"
    return ""


def _of_engine(found: Break, head: Course) -> str:
    """The same for the start of an engine or for its loop: head has to start it with plenty of
    memory, and may refuse it where there is little."""
    starts = found.signature.event == START
    if head.dead:
        when = "at the start" if starts else "in the loop"
        return f"head dies {when} ({_first_line(head.dead)})"
    if found.signature.check not in head.judged:
        if starts:
            return "head does not start this engine with any memory"
        return "the check has nothing to judge on head"
    return ""


def _at(events: tuple[Event, ...], number: int) -> str:
    what, _, _ = describe(stimulus(events[number])).partition(":")
    return f"event {number + 1} of {len(events)}, {what}"


def _first_line(text: str) -> str:
    return (text.splitlines() or [""])[0]


def _concerned(stands: Iterable[Stands], about: About) -> dict[tuple[str, str], Stands]:
    """The requests that a finding is about: the one that it names, or all of its engine."""
    return {
        (each.engine, each.request): each
        for each in stands
        if about.engine in ("", each.engine) and about.request in ("", each.request)
    }


def _first_other_choice(ours: tuple[Event, ...], theirs: tuple[Event, ...]) -> int:
    """The index of the first event at which the choices differ; of the last where none do."""
    both = zip(ours, theirs, strict=False)
    return next((n for n, (a, b) in enumerate(both) if bare(a) != bare(b)), len(ours) - 1)


def _other(ours: dict[tuple[str, str], Stands], theirs: dict[tuple[str, str], Stands]) -> str:
    place = min(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))
    return (
        f"head goes another way, {place[1]} on {place[0]} is {_state(theirs.get(place))} there and "
        f"{_state(ours.get(place))} on base"
    )


def _state(one: Stands | None) -> str:
    if one is None:
        return "absent"
    return f"{one.status} {'with' if one.holds else 'without'} blocks"
