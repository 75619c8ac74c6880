"""Async scheduling: a step is dispatched before the output of the step before it arrives."""

from kvproof.invariants.goals.goal import Goal, on_some_engine
from kvproof.model.config import Cluster
from kvproof.model.events import Complete, Schedule
from kvproof.model.state import LATE, VOID
from kvproof.model.step import Step


def _overlaps(_cluster: Cluster, step: Step, event: Schedule) -> bool:
    before, after = step.before.engine(event.engine).steps, step.after.engine(event.engine).steps
    return len(after) > len(before) > 0


def _has_fate(step: Step, event: Complete, fate: str) -> bool:
    steps = step.before.engine(event.engine).steps
    return bool(steps) and any(flight.fate == fate for flight in steps[0])


def _late(_cluster: Cluster, step: Step, event: Complete) -> bool:
    return _has_fate(step, event, LATE)


def _void(_cluster: Cluster, step: Step, event: Complete) -> bool:
    return _has_fate(step, event, VOID)


_async = on_some_engine(lambda engine: engine.overlaps)

GOALS = (
    Goal(
        "overlapping_steps",
        "a step is dispatched while another is in flight",
        *(Schedule, _overlaps, "async-preempting", "full", _async),
    ),
    Goal(
        "late_output",
        "a token arrives for a request that was preempted meanwhile",
        *(Complete, _late, "async-preempting", "full", _async),
    ),
    Goal(
        "void_output",
        "an output is dropped because its request has ended",
        *(Complete, _void, "async-preempting", "full", _async),
    ),
)
