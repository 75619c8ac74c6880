"""Every invariant has teeth: the fault it names breaks it, and it alone is asked."""

import pytest

from kvproof.invariants.invariant import Invariant
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.faults.fault import Fault, rules_with
from kvproof.model.faults.registry import FAULTS, fault_named
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.explorer import explore
from kvproof.strategies.verdict import Verdict

pytestmark = pytest.mark.exhaustive


@pytest.mark.parametrize("invariant", INVARIANTS.values(), ids=list(INVARIANTS))
def test_the_fault_an_invariant_names_breaks_it(invariant: Invariant) -> None:
    fault = fault_named(invariant.teeth)
    outcome = explore(CLUSTERS[fault.cluster], rules_with([fault]), [invariant])
    assert outcome.verdict is Verdict.VIOLATED
    assert outcome.finding is not None
    assert outcome.finding.invariant == invariant.id
    assert invariant.id in fault.breaks


@pytest.mark.parametrize("invariant", INVARIANTS.values(), ids=list(INVARIANTS))
def test_without_the_fault_it_holds_there(invariant: Invariant) -> None:
    cluster = CLUSTERS[fault_named(invariant.teeth).cluster]
    assert explore(cluster, invariants=[invariant]).verdict is Verdict.EXHAUSTED


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_every_invariant_a_fault_is_said_to_break_is_one(fault: Fault) -> None:
    assert set(fault.breaks) <= set(INVARIANTS)
    assert fault.cluster in CLUSTERS
