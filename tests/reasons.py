"""Reasons made by hand, and what a check answers to a step that is made by hand."""

from typing import Any

from kvproof.invariants.check import Check, Tally, broken
from kvproof.model.because import Reasons, reason
from kvproof.model.config import Cluster
from kvproof.model.events import Event
from kvproof.model.state import Engine, State
from kvproof.model.step import Effects, Step


def said(*sentences: str) -> Reasons:
    """Reasons with these words. Each has a kind of its own."""
    return tuple(reason(each, each) for each in sentences)


def alone(before: Engine, event: Event, after: Engine | None = None, **effects: Any) -> Step:
    """A step of an engine that is alone, and stays as it was if it is not said otherwise."""
    return Step(State((before,)), event, Effects(**effects), State((after or before,)))


def answers(check: Check, cluster: Cluster, step: Step) -> tuple[int, int, int]:
    """How often a check judged a step, excused a break, and found one without an excuse."""
    tally = Tally()
    found = len([*broken(cluster, step, [check], tally)])
    return tally.judged[check.id], tally.excused[check.id], found
