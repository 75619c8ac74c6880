"""Machines: systems that take events and have an observable state.

One machine is the model, the other is live vLLM behind its adapter. Strategies and invariants treat
both alike.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from kvproof.model.config import Cluster, Job
from kvproof.model.config.features.registry import refuse_unmodelled
from kvproof.model.events import Event
from kvproof.model.finding import Finding
from kvproof.model.reference import apply as model
from kvproof.model.state import State, initial
from kvproof.model.step import Step


class Machine(Protocol):
    """A system that takes events."""

    @property
    def name(self) -> str:
        """The name of the machine: `model` or `live`."""

    @property
    def cluster(self) -> Cluster:
        """The cluster, with the jobs so far."""

    @property
    def state(self) -> State:
        """The current state."""

    def add_job(self, job: Job) -> None:
        """Add a job to the cluster; it arrives with its `Submit` event."""

    def stimuli(self) -> list[Event]:
        """The events that the environment may send next."""

    def take(self, event: Event) -> Step:
        """Take one event. Raises NotAllowed where the event is not possible in this state."""

    def believe(self, state: State) -> None:
        """Continue from this state, with the block contents that it has."""

    def unexplained(self, step: Step, findings: Sequence[Finding]) -> list[Finding]:
        """The findings after a step that end the run, because no known finding explains them."""

    def note_excused(self, step: Step, findings: Sequence[Finding]) -> None:
        """Hear of the breaks after a step that have an excuse. They never end the run."""

    def shown(self) -> Sequence[object]:
        """What the engines answered to the calls of the last event and say of themselves, beside
        the state, as plain data; nothing where the machine has no such calls."""

    def close(self) -> None:
        """Free what the machine holds; the run is over."""


MakeMachine = Callable[[Cluster], Machine]
"""Makes a fresh machine for a cluster."""


class ModelMachine:
    """The model as a machine. It checks a recorded `Schedule` choice by choice."""

    name = "model"

    def __init__(self, cluster: Cluster) -> None:
        refuse_unmodelled(cluster)
        self.cluster = cluster
        self.state = initial(cluster)

    def add_job(self, job: Job) -> None:
        """Add a job to the cluster."""
        self.cluster = self.cluster.carrying(*self.cluster.jobs, job)

    def stimuli(self) -> list[Event]:
        """The events that the environment may send next."""
        return list(model.stimuli(self.cluster, self.state))

    def take(self, event: Event) -> Step:
        """Take one event."""
        step = model.apply(self.cluster, self.state, event)
        self.state = step.after
        return step

    def believe(self, state: State) -> None:
        """Continue from this state."""
        self.state = state

    def unexplained(self, step: Step, findings: Sequence[Finding]) -> list[Finding]:  # noqa: ARG002
        """All findings: the model has no known findings, so each finding ends the run."""
        return list(findings)

    def note_excused(self, step: Step, findings: Sequence[Finding]) -> None:
        """Do nothing: one machine alone says nothing of what is excused."""

    def shown(self) -> Sequence[object]:
        """Nothing: the model's state is all that it has."""
        return ()

    def close(self) -> None:
        """Do nothing: the model holds nothing."""
