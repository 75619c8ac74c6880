"""Machines: what can be driven by events and observed as states.

The model is one, live vLLM behind its adapter is the other; strategies and invariants cannot tell
them apart.
"""

from typing import Protocol

from kvproof.model.config import Cluster, Job
from kvproof.model.events import Event
from kvproof.model.reference import apply as model
from kvproof.model.reference.default_rules import REFERENCE
from kvproof.model.reference.rules import Rules
from kvproof.model.state import State
from kvproof.model.step import Step


class Machine(Protocol):
    """Something that takes events."""

    @property
    def name(self) -> str:
        """`model` or `live`."""

    @property
    def cluster(self) -> Cluster:
        """What is driven, with the jobs so far."""

    @property
    def state(self) -> State:
        """As it is now."""

    def add_job(self, job: Job) -> None:
        """Add a job to the traffic; it arrives when it is submitted."""

    def stimuli(self) -> list[Event]:
        """What the environment may do next."""

    def take(self, event: Event) -> Step:
        """Take one event. Raises NotAllowed where it is not possible in this state."""

    def believe(self, state: State) -> None:
        """Go on from this state: blocks hold what it says they hold."""


class ModelMachine:
    """The model as a machine. A recorded `Schedule` is checked choice by choice."""

    name = "model"

    def __init__(self, cluster: Cluster, rules: Rules = REFERENCE) -> None:
        self.cluster = cluster
        self.rules = rules
        self.state = model.initial(cluster)

    def add_job(self, job: Job) -> None:
        """Add a job to the traffic."""
        self.cluster = self.cluster.carrying(*self.cluster.jobs, job)

    def stimuli(self) -> list[Event]:
        """What the environment may do next."""
        return list(model.stimuli(self.cluster, self.state, self.rules))

    def take(self, event: Event) -> Step:
        """Take one event."""
        step = model.apply(self.cluster, self.state, event, self.rules)
        self.state = step.after
        return step

    def believe(self, state: State) -> None:
        """Go on from this state."""
        self.state = state
