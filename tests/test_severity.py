"""How grave a finding is, which of several is told, what it leads to, and what fails a run."""

from typing import Any

import pytest

from kvproof.invariants.registry import INVARIANTS, gravest
from kvproof.model.faults.registry import FAULTS, fault_named
from kvproof.model.finding import Finding
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.severity import Severity
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.run import Run, Violated
from kvproof.strategies.verdict import Outcome, Verdict
from tests.planted import under
from tests.reasons import said

USELESS = ["--fault", "hit_collapses_with_three_groups"]
"""It breaks nothing but that a hit is the longest."""

BOTH = ["--fault", "loaded_state_not_predicted"]
"""It takes more blocks than predicted, and where there are no more the engine dies."""


def finding(invariant: str) -> Finding:
    return Finding(invariant, said("so", "not so"))


def violated(invariant: str) -> Outcome:
    return Outcome(Verdict.VIOLATED, finding=finding(invariant))


def test_every_invariant_has_a_severity() -> None:
    assert all(isinstance(each.severity, Severity) for each in INVARIANTS.values())
    of_others = {Severity.WRONG_REPORT}  # no state has statistics: the loop and the kit judge them
    assert {each.severity for each in INVARIANTS.values()} == set(Severity) - of_others


@pytest.mark.parametrize("fail_on", Severity)
def test_a_finding_fails_from_its_severity_on(fail_on: Severity) -> None:
    for each in INVARIANTS.values():
        assert each.severity is not None
        assert violated(each.id).exit_code(fail_on) == (each.severity <= fail_on)
    assert Outcome(Verdict.UNKNOWN).exit_code(fail_on) == 3
    assert Outcome(Verdict.EXHAUSTED).exit_code(fail_on) == 0


def test_a_run_ends_with_the_gravest_and_carries_the_others() -> None:
    fault = FAULTS["untouched_hits"]
    machine = ModelMachine(CLUSTERS[fault.cluster])
    explored = under([fault], explore, CLUSTERS[fault.cluster])
    # Asked in the wrong order, and told in the right one.
    run = Run(machine, reversed(INVARIANTS.values()))
    *before, last = explored.events
    for event in before:
        under([fault], run.take_one, event)
    with pytest.raises(Violated) as caught:
        under([fault], run.take_one, last)
    told = [caught.value.finding, *caught.value.others]
    assert len(told) > 1
    assert told == gravest(told)
    assert caught.value.finding == explored.finding


def test_only_lost_performance_is_told_and_does_not_fail(as_json: Any) -> None:
    code, record = as_json("explore", *USELESS)
    assert (code, record["exit_code"], record["verdict"]) == (0, 0, "VIOLATED")
    assert (record["invariant"], record["severity"]) == ("hit_is_the_longest", "lost performance")
    assert record["otherwise"]["verdict"] == "EXHAUSTED"
    assert len(record["reasons"]) == 2
    code, replayed = as_json("replay", record["trace"])
    assert (code, replayed["exit_code"], replayed["verdict"]) == (1, 1, "VIOLATED")
    code, replayed = as_json("replay", record["trace"], "--fail-on", "leak")
    assert (code, replayed["exit_code"], replayed["verdict"]) == (0, 0, "VIOLATED")
    code, record = as_json("explore", *USELESS, "--fail-on", "lost-performance")
    assert (code, record["exit_code"]) == (1, 1)
    assert "otherwise" not in record


def test_a_lesser_finding_hides_no_graver_one(as_json: Any) -> None:
    chosen = fault_named(BOTH[1])
    first = under([chosen], explore, CLUSTERS[chosen.cluster])
    assert first.severity is Severity.BOOKKEEPING
    code, record = as_json("explore", *BOTH)
    assert (code, record["severity"]) == (1, "crash")
    assert first.finding is not None
    assert record["tolerated"]["invariant"] == first.finding.invariant


def test_a_search_for_graver_ones_that_is_cut_is_unknown(as_json: Any) -> None:
    code, record = as_json("explore", *USELESS, "--states-max", "8")
    assert (code, record["verdict"]) == (3, "UNKNOWN")
    assert record["tolerated"]["invariant"] == "hit_is_the_longest"
