"""How grave a finding is, which of several is told, what it leads to, and what fails a run."""

from typing import Any

import pytest

from kvproof.invariants.check import broken
from kvproof.invariants.registry import CHECKS, INVARIANTS, gravest
from kvproof.model.config import Cluster
from kvproof.model.events import Event
from kvproof.model.faults.registry import FAULTS, fault_named
from kvproof.model.finding import Finding
from kvproof.model.known_finding import KnownFinding
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS, cluster_named
from kvproof.model.severity import Severity
from kvproof.model.signature import Signature
from kvproof.strategies.conformance.consequence import leads_to
from kvproof.strategies.conformance.watched import Watched
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.run import Run, Violated
from kvproof.strategies.verdict import Outcome, Verdict
from tests.planted import Mistakes, under
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


# What a guard that is not met leads to


LATE = "resumes_before_late_output"
GUARD = "admitted_request_was_waiting"


def unmet(fault: str, guard: str) -> tuple[Cluster, Mistakes, Outcome]:
    """A shortest run of a faulty model in which a guard is not met."""
    chosen = fault_named(fault)
    cluster, faults = cluster_named(chosen.cluster), [chosen]
    outcome = under(faults, explore, cluster, [CHECKS[guard]])
    assert outcome.finding is not None
    return cluster, faults, outcome


@pytest.fixture(scope="module")
def late() -> tuple[Cluster, Mistakes, Outcome]:
    return unmet(LATE, GUARD)


def test_the_first_invariant_that_breaks_is_told(late: tuple[Cluster, Mistakes, Outcome]) -> None:
    cluster, faults, outcome = late
    found = under(faults, leads_to, ModelMachine(cluster), outcome.events)
    assert found is not None
    assert found.finding.invariant == "placeholders_are_samples_in_flight"
    assert found.sentence.startswith("1 event later: placeholders_are_samples_in_flight: r0 on E")
    machine = ModelMachine(cluster)
    for event in outcome.events:
        assert not under(faults, _broken, machine, event), (
            "an invariant breaks before, and is the finding itself"
        )


def _broken(machine: ModelMachine, event: Event) -> list[str]:
    step = machine.take(event)
    always = (i for i in INVARIANTS.values() if i.kind == "always")
    return [found.invariant for found in broken(machine.cluster, step, always)]


def test_a_known_finding_is_not_what_it_leads_to(late: tuple[Cluster, Mistakes, Outcome]) -> None:
    cluster, faults, outcome = late
    plain = under(faults, leads_to, ModelMachine(cluster), outcome.events)
    assert plain is not None
    hidden = KnownFinding(
        name="hidden",
        says="placeholders are counted otherwise",
        signatures=frozenset(
            Signature(plain.finding.invariant, event) for event in ("Schedule", "Complete")
        ),
        present=lambda *_: True,
    )
    watched = Watched(ModelMachine(cluster), [hidden])
    assert under(faults, leads_to, watched, outcome.events) is None
    assert watched.met["hidden"] > 0


def test_a_request_that_never_finishes_is_told_at_once() -> None:
    cluster, faults, outcome = unmet("held_is_loaded_again", "load_is_offered")
    found = under(faults, leads_to, ModelMachine(cluster), outcome.events)
    assert found is not None
    assert found.finding.invariant == "every_request_can_finish"
    assert found.finding.sentences[-1] == "a whole fair round changes nothing"


def test_an_invariant_that_breaks_with_the_guard_is_told_with_it() -> None:
    chosen = fault_named("double_free")
    cluster, faults = cluster_named(chosen.cluster), [chosen]
    outcome = under(faults, explore, cluster)
    found = under(faults, leads_to, ModelMachine(cluster), outcome.events)
    assert outcome.finding is not None
    assert found is not None
    assert (found.events, found.finding) == (0, outcome.finding)
    assert found.sentence.startswith(f"at the same event: {outcome.finding.invariant}: ")


def test_nothing_is_told_of_a_machine_that_does_not_take_the_same(
    late: tuple[Cluster, Mistakes, Outcome],
) -> None:
    cluster, _, outcome = late
    assert leads_to(ModelMachine(cluster), outcome.events) is None
