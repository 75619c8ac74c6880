"""This module finds where a trace went wrong before its last event: the first state in which an
invariant of a single state does not hold. In a trace of real vLLM this is often the cause of what
breaks at the end: a known finding does not end a run."""

from typing import NamedTuple

from kvproof.invariants.check import broken
from kvproof.invariants.registry import INVARIANTS, severity_of
from kvproof.model.finding import Finding
from kvproof.model.state import Engine, State
from kvproof.model.step import Effects, Step
from kvproof.model.traces.restored import restored
from kvproof.model.traces.trace import Trace


class Sign(NamedTuple):
    """The number of an event, from 1, and what does not hold after it."""

    event: int
    finding: Finding


def first_sign(trace: Trace) -> Sign | None:
    """Find the first event, before the last one, after which an invariant does not hold that is as
    severe as the finding of the trace. The result is None where there is none, or where no states
    were recorded."""
    if trace.finding is None or (severity := severity_of(trace.finding)) is None:
        return None
    grave = [i for i in INVARIANTS.values() if i.severity is not None and i.severity <= severity]
    checks = [each for each in grave if Engine in each.judged or State in each.judged]
    before = None
    for number, (flat, event) in enumerate(zip(trace.states(), trace.events, strict=False)):
        after = restored(flat)
        step = Step(before or after, event, Effects(), after)
        for finding in broken(trace.cluster, step, checks if number else ()):
            return Sign(number, finding)
        before = after
    return None
