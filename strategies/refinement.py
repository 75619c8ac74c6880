"""Refinement: a machine is driven, and the model beside it must be able to do the same.

The model takes every event as the machine resolved it. Each must be allowed, and the state and the
effects after it must be equal. The model may have faults: those a release of vLLM is known to have.
A finding that the model with these faults shows at the same step is explained by them; any other
is new.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from kvproof.invariants.invariant import Finding, broken
from kvproof.invariants.registry import INVARIANTS
from kvproof.model import capacity
from kvproof.model.config import Cluster, Job
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Event, describe
from kvproof.model.faults.fault import Fault, rules_with
from kvproof.model.machine import Machine, ModelMachine
from kvproof.model.state import PREEMPTED, WAITING, State
from kvproof.model.step import Step
from kvproof.strategies.drain import drain
from kvproof.strategies.run import Run, Violated

REFINES = "refines_the_model"
"""The id of the finding that a machine did what the model does not allow, or not in that way."""


def differences(model: Any, machine: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Fields in which two values of the same kind differ: path, the model's, the machine's."""
    if model == machine:
        return
    if isinstance(model, tuple) and isinstance(machine, tuple) and len(model) == len(machine):
        names = getattr(model, "_fields", None) or [f"[{i}]" for i in range(len(model))]
        for name, ours, theirs in zip(names, model, machine, strict=True):
            yield from differences(ours, theirs, f"{path}.{name}" if path else name)
        return
    yield path, model, machine


class Shadowed:
    """A machine with the model beside it, as a machine. `explained` counts, by invariant, the
    findings that the faults of the model explain."""

    def __init__(
        self,
        machine: Machine,
        faults: Iterable[Fault] = (),
        explained: Counter[str] | None = None,
    ) -> None:
        self.machine = machine
        known = tuple(faults)
        self.rules = rules_with(known)
        self.shadow = ModelMachine(machine.cluster, self.rules)
        here = [fault for fault in known if fault.concerns(machine.cluster)]
        self.breaks = {i for fault in here for i in fault.breaks}
        self.name = machine.name
        self.steps: list[Step] = []
        self.explained: Counter[str] = Counter() if explained is None else explained
        self.expected: set[Finding] = set()

    @property
    def cluster(self) -> Cluster:
        """The cluster being driven."""
        return self.machine.cluster

    @property
    def state(self) -> State:
        """The state of the driven machine."""
        return self.machine.state

    def add_job(self, job: Job) -> None:
        """Add a job to the traffic of both."""
        self.machine.add_job(job)
        self.shadow.add_job(job)

    def stimuli(self) -> list[Event]:
        """What the environment may do next."""
        return self.machine.stimuli()

    def close(self) -> None:
        """Close the driven machine, where it can be."""
        close = getattr(self.machine, "close", None)
        if close is not None:
            close()

    def take(self, event: Event) -> Step:
        """Take one event on both. Raises Violated where the model cannot follow."""
        step = self.machine.take(event)
        self.steps.append(step)
        self.expected = set()
        died = any(e.dead for e in step.after.engines)
        try:
            own = self.shadow.take(step.event)
        except NotAllowed as error:
            if died:
                return step  # the machine reports its death itself
            self._differ(step, f"the model does not allow it: {error}")
        if died:
            # How an engine dies is its own affair; that it may die here is the model's.
            if any(e.dead for e in own.after.engines):
                self.expected = set(broken(self.cluster, step, INVARIANTS.values()))
            return step
        for part in ("after", "effects", "event"):
            for path, ours, theirs in differences(getattr(own, part), getattr(step, part)):
                self._differ(step, f"{path} is {theirs!r} where the model has {ours!r}")
        self.expected = set(broken(self.cluster, own, INVARIANTS.values()))
        return step

    def expects(self, finding: Finding) -> bool:
        """Whether the model, with its faults, shows this finding at the last step too, or in being
        driven to its end."""
        if finding.invariant not in self.breaks:
            return False
        if finding not in self.expected and not self._stays(finding):
            return False
        self.explained[finding.invariant] += 1
        return True

    def _stays(self, finding: Finding) -> bool:
        """Whether the model, driven on from here, need not come to its end either."""
        if INVARIANTS[finding.invariant].kind != "eventually":
            return False
        if self._has_misfit():
            return True
        model = ModelMachine(self.cluster, self.rules)
        model.state = self.shadow.state
        try:
            drain(Run(model, ()), finding.invariant)
        except Violated:
            return True
        return False

    def _has_misfit(self) -> bool:
        """Whether somebody waits whom only a fault has let in: no engine is sure to hold it, and
        the scheduler may pass it by for ever."""
        return any(
            r.status in (WAITING, PREEMPTED)
            and not cfg.connected
            and not capacity.can_hold(cfg, r)
            and self.rules.request_fits_pool(capacity.blocks_to_the_end(cfg, r), cfg.num_blocks)
            for cfg, engine in zip(self.cluster.engines, self.shadow.state.engines, strict=True)
            for r in engine.requests
        )

    def _differ(self, step: Step, how: str) -> None:
        reasons = (f"{self.machine.name} took {describe(step.event)}", how)
        raise Violated(Finding(REFINES, reasons), self.cluster, tuple(self.steps))
