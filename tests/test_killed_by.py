"""Each invariant that a fault is said to break it breaks, with that invariant alone asked: what a
fault lists in `breaks`, and what names the fault in `killed_by`."""

import functools

import pytest

from kvproof.invariants.invariant import Invariant
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.config import Cluster, Engine, Group, Job
from kvproof.model.faults.registry import FAULTS, fault_named
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.verdict import Verdict
from kvproof.strategies.witnesses import Witness, broken_by, witnesses

pytestmark = pytest.mark.exhaustive

PAIRS = [(fault.name, name) for fault in FAULTS.values() for name in broken_by(fault)]


@functools.cache
def found(fault: str) -> tuple[Witness, ...]:
    return tuple(witnesses([FAULTS[fault]]))


@pytest.mark.parametrize(("fault", "invariant"), PAIRS)
def test_the_fault_breaks_the_invariant(fault: str, invariant: str) -> None:
    assert invariant in INVARIANTS
    assert invariant in {witness.finding.invariant for witness in found(fault)}


@pytest.mark.parametrize("fault", FAULTS)
def test_it_shows_in_each_of_its_presets(fault: str) -> None:
    assert {witness.cluster.name for witness in found(fault)} == set(FAULTS[fault].clusters)


@pytest.mark.parametrize("invariant", INVARIANTS.values(), ids=list(INVARIANTS))
def test_every_invariant_is_killed_by_a_fault_that_there_is(invariant: Invariant) -> None:
    assert fault_named(invariant.killed_by).cluster in CLUSTERS


def test_a_loaded_request_that_waits_holds_the_token_it_computes_again() -> None:
    """Two loads are adopted in one step and the budget computes one of them: the other waits with
    all its blocks counted and one token fewer computed."""
    groups = (Group("full", 1), Group("window", 1, window=2))
    p = Engine("P", groups, 10, "prefill", 1)
    d = Engine("D", groups, 10, "decode", 1)
    cluster = Cluster("waiting", (p, d), (Job("r0", "aA"), Job("r1", "ab")))
    assert explore(cluster).verdict is Verdict.EXHAUSTED
