"""Whether the run of a break of base says anything about head.

It does where head takes the same events to the end of the run, the check had something to judge
there, and the requests that the break is about stand before the event that shows it as they do on
base: then the check had there what it judges. Where head dies earlier, or goes another way, that it
shows no break says nothing.
"""

from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.record import Course, Stands
from kvproof.gate.difference.workload import Engine
from kvproof.invariants.registry import CHECKS


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
