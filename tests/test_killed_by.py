"""The explorer finds every fault: each invariant that a fault is said to break it breaks, with that
invariant alone asked (what the fault lists in `breaks`, and what names the fault in `killed_by`),
and the shortest trace is as long as the fault says."""

import pytest

from kvproof.invariants.check import Check
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.faults.registry import FAULTS, fault_named
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.verdict import Verdict
from kvproof.strategies.witnesses import broken_by, witnesses

pytestmark = pytest.mark.exhaustive


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_breaks_what_it_is_said_to_break_in_each_of_its_presets(fault: str) -> None:
    found = list(witnesses([FAULTS[fault]]))
    assert {each.cluster.name for each in found} == set(FAULTS[fault].clusters)
    assert {each.finding.invariant for each in found} == set(broken_by(FAULTS[fault]))
    first = [w for w in found if w.cluster.name == FAULTS[fault].cluster]
    shortest = min(len(w.events) for w in first if w.finding.invariant in FAULTS[fault].breaks)
    assert shortest == FAULTS[fault].trace_events


@pytest.mark.parametrize("invariant", INVARIANTS.values(), ids=list(INVARIANTS))
def test_every_invariant_is_killed_by_a_fault_that_there_is(invariant: Check) -> None:
    assert fault_named(invariant.killed_by).cluster in CLUSTERS


def test_a_loaded_request_that_waits_holds_the_token_it_computes_again() -> None:
    """Two loads are adopted in one step and the budget computes one of them: the other waits with
    all its blocks counted and one token fewer computed."""
    groups = (Group("full", 1), Group("window", 1, window=2))
    p = EngineConfig("P", groups, 10, "prefill", 1)
    d = EngineConfig("D", groups, 10, "decode", 1)
    cluster = Cluster("waiting", (p, d), (Job("r0", "aA"), Job("r1", "ab")))
    assert explore(cluster).verdict is Verdict.EXHAUSTED
