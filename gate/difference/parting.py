"""Whether the run of a break of base says anything about head.

It does where head takes the same events past the place and to the end of the run, and the requests
that the break is about stand at the place as they do on base: then the check had there what it
judges. Where head dies earlier, or goes another way, that it shows no break says nothing.
"""

from collections.abc import Iterable

from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.record import Course, Stands
from kvproof.gate.difference.workload import Engine
from kvproof.invariants.registry import CHECKS
from kvproof.model.because import About


def parting(found: Break, base: Course, head: Course, parts_at: int | None = None) -> str:
    """How head leaves the run that shows a break on base, and from which event on, whose index is
    `parts_at`. Empty where head takes it to its end, and the check had the same to judge at the
    place of the break. Both courses are of the run of the break."""
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
    if found.plan is not None and check not in head.judged:
        return "the check has nothing to judge on head"
    if in_core or (found.plan is None and CHECKS[check].kind == "eventually"):
        return ""
    ours, theirs = (_concerned(each.stands, found.finding.about) for each in (base, head))
    if ours == theirs:
        return ""
    engine, request = min(k for k in {*ours, *theirs} if ours.get(k) != theirs.get(k))
    there, here = (_state(side.get((engine, request))) for side in (theirs, ours))
    return f"head goes another way, {request} on {engine} is {there} and {here} on base"


def _concerned(stands: Iterable[Stands], about: About) -> dict[tuple[str, str], Stands]:
    """The requests that a finding is about: the one that it names, or all of its engine."""
    return {
        (each.engine, each.request): each
        for each in stands
        if about.engine in ("", each.engine) and about.request in ("", each.request)
    }


def _state(one: Stands | None) -> str:
    if one is None:
        return "absent"
    return f"{one.status} {'with' if one.holds else 'without'} blocks"
