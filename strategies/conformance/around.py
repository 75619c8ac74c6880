"""A machine that wraps another machine and passes all calls on to it."""

from collections.abc import Sequence

from kvproof.model.config import Cluster, Job
from kvproof.model.events import Event
from kvproof.model.finding import Finding
from kvproof.model.machine import Machine
from kvproof.model.state import State
from kvproof.model.step import Step


class Around:
    """A machine that wraps another machine. Subclasses add behaviour."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.name = machine.name

    @property
    def cluster(self) -> Cluster:
        """The cluster being driven."""
        return self.machine.cluster

    @property
    def state(self) -> State:
        """The state of the driven machine."""
        return self.machine.state

    def add_job(self, job: Job) -> None:
        """Add a job to the traffic."""
        self.machine.add_job(job)

    def stimuli(self) -> list[Event]:
        """What the environment may do next."""
        return self.machine.stimuli()

    def take(self, event: Event) -> Step:
        """Take one event."""
        return self.machine.take(event)

    def believe(self, state: State) -> None:
        """Continue from this state."""
        self.machine.believe(state)

    def unexplained(self, step: Step, findings: Sequence[Finding]) -> list[Finding]:
        """The findings after a step that nothing known explains."""
        return self.machine.unexplained(step, findings)

    def close(self) -> None:
        """Close the driven machine."""
        self.machine.close()
