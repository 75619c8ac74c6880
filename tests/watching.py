"""Live vLLM with its known findings, as tests drive it."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kvproof.live.contract.features import FEATURES, used_by
from kvproof.live.contract_check import check
from kvproof.live.known.registry import KNOWN
from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift
from kvproof.model.events import Complete, Event, Schedule, Submit
from kvproof.model.faults.fault import Fault
from kvproof.model.faults.registry import FAULTS
from kvproof.model.finding import Finding
from kvproof.model.step import Step
from kvproof.strategies.conformance.watched import Watched

LATER = tuple(name for name, feature in FEATURES.items() if feature.later)
"""Features of vLLM that came after the release that is tested in full."""


def live_machine(cluster: Cluster) -> Any:
    """Fresh live vLLM for a cluster. vLLM is imported here, and not by who imports this module."""
    from kvproof.live.machine import LiveMachine

    return LiveMachine(cluster)


def step(machine: Any, engine: str = "E") -> None:
    """One step of an engine, to its end."""
    machine.take(Schedule(engine))
    if machine.state.engine(engine).step:
        machine.take(Complete(engine))


def serve(machine: Any, request: str, engine: str = "E") -> None:
    """A request of an engine from its arrival to its end."""
    machine.take(Submit(engine, request))
    while machine.nodes[engine].scheduler.requests:
        step(machine, engine)


class Counting(Watched):
    """A watched machine that counts the steps it was judged by."""

    judged = 0

    def unexplained(self, *args: Any) -> Any:
        """Count the step, and leave out what is known."""
        self.judged += 1
        return super().unexplained(*args)


def watched(cluster: Cluster, without: str = "") -> "Counting":
    """Fresh live vLLM for a cluster. All known findings are excused, `without` one of them."""
    known = [each for name, each in KNOWN.items() if name != without]
    return Counting(live_machine(cluster), known)


class Observed:
    """Live vLLM of a cluster, each engine under an observer of class `kind` if it is another.
    `found` counts the findings by check. `told` is called with each finding and the history of its
    engine."""

    def __init__(
        self,
        cluster: Cluster,
        kind: Any = None,
        told: Callable[..., None] = lambda *_: None,
        **options: Any,
    ) -> None:
        from kvproof.watch.judge import Judge
        from kvproof.watch.observer import Observer

        def finds(finding: Finding, history: Any) -> None:
            self.found[finding.invariant] += 1
            told(finding, history)

        self.found: Counter[str] = Counter()
        self.said: list[str] = []
        self.machine = live_machine(cluster)
        nodes = self.machine.nodes
        self.judges = {name: Judge(finds, self.said.append) for name in nodes}
        self.observers = {
            name: (kind or Observer)(node.scheduler, self.judges[name], name, **options)
            for name, node in nodes.items()
        }

    def take(self, *events: Event) -> Step:
        """Take events. Gives the last step."""
        return [self.machine.take(event) for event in events][-1]


def is_later(cluster: Cluster) -> bool:
    """Whether the cluster uses a feature that not every vLLM has."""
    return any(feature in used_by(cluster) for feature in LATER)


def is_undriven(cluster: Cluster) -> bool:
    """Whether the cluster uses a feature that came later than this vLLM. Then no engine is built:
    the verdict would be UNKNOWN, with the name of what is missing."""
    missing = [f for f in LATER if f in used_by(cluster) and check().missing(f)]
    if missing:
        with pytest.raises(AdapterDrift, match=f"This vLLM has no .*, needed for {missing[0]}"):
            live_machine(cluster)
    return bool(missing)


def known_faults(cluster: Cluster) -> list[Fault]:
    """The mistakes that vLLM is known for and that concern a cluster, as faults of the model."""
    faults = [FAULTS[name] for name in KNOWN if name in FAULTS]
    return [fault for fault in faults if fault.concerns(cluster)]
