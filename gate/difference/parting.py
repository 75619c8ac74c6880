"""Whether the run of a break of base says anything about head.

It does where head takes the same events to the end of the run, and the check had something to judge
there. Where head dies earlier, or cannot take all events, that it shows no break says nothing.
"""

from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.record import Course
from kvproof.gate.difference.workload import Engine
from kvproof.invariants.registry import CHECKS


def parting(found: Break, head: Course, parts_at: int | None = None) -> str:
    """How head leaves the run that shows a break on base, and from which event on, whose index is
    `parts_at`. Empty where head takes it to its end, and the check had something to judge."""
    why = _why(found, head)
    where = f"from event {parts_at + 1} on, " if parts_at is not None else ""
    return where + why if why else ""


def _why(found: Break, head: Course) -> str:
    check = found.signature.check
    if head.dead:
        return f"head dies ({head.dead.splitlines()[0]})"
    if head.skipped:
        return f"{head.skipped} of its events are not possible on head"
    if not (head.ended or isinstance(found.plan, Engine)):
        return "the run does not come to its end on head"
    at_the_end = check in CHECKS and CHECKS[check].kind == "eventually"
    if check not in head.judged and not at_the_end:
        return "the check has nothing to judge on head"
    return ""
