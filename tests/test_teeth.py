"""Every invariant has teeth: the fault it names breaks it, and it alone is asked."""

import pytest

from kvproof.invariants.invariant import Invariant
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.config import Cluster, Engine, Group, Job
from kvproof.model.faults.fault import Fault, rules_with
from kvproof.model.faults.registry import FAULTS, fault_named
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.verdict import Verdict

pytestmark = pytest.mark.exhaustive


@pytest.mark.parametrize("invariant", INVARIANTS.values(), ids=list(INVARIANTS))
def test_the_fault_an_invariant_names_breaks_it(invariant: Invariant) -> None:
    fault = fault_named(invariant.killed_by)
    outcome = explore(CLUSTERS[fault.cluster], rules_with([fault]), [invariant])
    assert outcome.verdict is Verdict.VIOLATED
    assert outcome.finding is not None
    assert outcome.finding.invariant == invariant.id
    assert invariant.id in fault.breaks


@pytest.mark.parametrize("invariant", INVARIANTS.values(), ids=list(INVARIANTS))
def test_without_the_fault_it_holds_there(invariant: Invariant) -> None:
    cluster = CLUSTERS[fault_named(invariant.killed_by).cluster]
    assert explore(cluster, invariants=[invariant]).verdict is Verdict.EXHAUSTED


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_every_invariant_a_fault_is_said_to_break_is_one(fault: Fault) -> None:
    assert set(fault.breaks) <= set(INVARIANTS)
    assert fault.cluster in CLUSTERS


def test_a_loaded_request_that_waits_holds_the_token_it_computes_again() -> None:
    """Two loads are adopted in one step and the budget computes one of them: the other waits with
    all its blocks counted and one token fewer computed."""
    groups = (Group("full", 1), Group("window", 1, window=2))
    p = Engine("P", groups, 10, "prefill", 1)
    d = Engine("D", groups, 10, "decode", 1)
    cluster = Cluster("waiting", (p, d), (Job("r0", "aA"), Job("r1", "ab")))
    assert explore(cluster).verdict is Verdict.EXHAUSTED
