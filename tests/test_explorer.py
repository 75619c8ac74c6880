"""The explorer: exact numbers of states, shortest traces, and no verdict it has not earned."""

from collections.abc import Iterable

import pytest

from kvproof.invariants.check import Check, broken
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.events import Event, stimulus
from kvproof.model.faults.fault import Fault
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.verdict import Verdict
from tests.cover import TENTH, others_nightly
from tests.planted import under

pytestmark = pytest.mark.exhaustive


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_number_of_distinct_states(name: str) -> None:
    outcome = explore(CLUSTERS[name])
    assert outcome.verdict is Verdict.EXHAUSTED
    assert outcome.coverage["states_distinct"] == CLUSTERS.file(name).distinct_states


def asked_of_steps(fault: Fault) -> list[Check]:
    """The invariants that a fault breaks in a single step."""
    asked = [INVARIANTS[name] for name in fault.breaks]
    return [invariant for invariant in asked if invariant.kind != "eventually"]


def breaks(fault: Fault, events: Iterable[Event]) -> bool:
    """Whether these events, as far as they are possible, break such an invariant under a fault."""
    machine = ModelMachine(CLUSTERS[fault.cluster])
    steps = (machine.take(event) for event in events if event in machine.stimuli())
    return any(True for step in steps for _ in broken(machine.cluster, step, asked_of_steps(fault)))


@pytest.mark.parametrize(
    "name", others_nightly((name for name in FAULTS if asked_of_steps(FAULTS[name])), TENTH)
)
def test_every_event_of_a_shortest_trace_is_needed(name: str) -> None:
    """Without one of them the trace would be shorter."""
    fault = FAULTS[name]
    outcome = under([fault], explore, CLUSTERS[fault.cluster], asked_of_steps(fault))
    events = list(map(stimulus, outcome.events))
    assert under([fault], breaks, fault, events)
    for number, event in enumerate(events):
        rest = events[:number] + events[number + 1 :]
        assert not under([fault], breaks, fault, rest), event
