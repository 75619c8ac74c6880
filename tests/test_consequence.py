"""Where a guard is not met, the run is driven on, and the first invariant that breaks is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvproof.cli.main import main
from kvproof.invariants.check import broken
from kvproof.invariants.registry import CHECKS, INVARIANTS
from kvproof.model.config import Cluster
from kvproof.model.events import Event
from kvproof.model.faults.registry import fault_named
from kvproof.model.known_finding import KnownFinding
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import cluster_named
from kvproof.model.signature import Signature
from kvproof.strategies.conformance.consequence import leads_to
from kvproof.strategies.conformance.watched import Watched
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.verdict import Outcome
from tests.planted import Mistakes, under

LATE = "resumes_before_late_output"
GUARD = "admitted_request_was_waiting"
ALONE = ["explore", "--fault", LATE, "--invariant", GUARD]


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


def test_the_program_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def called(*argv: str) -> str:
        assert main(argv) == 1
        return capsys.readouterr().out

    shown = called(*ALONE)
    guard = CHECKS[GUARD]
    assert f"It must be true that {guard.name} (the spec, scheduler)." in " ".join(shown.split())
    assert "  1 event later: placeholders_are_samples_in_flight: r0 on E" in shown
    record: dict[str, Any] = json.loads(called(*ALONE, "--json"))
    assert record["invariant"] == GUARD
    assert (record["must_be_true"], record["origin"]) == (guard.name, "the spec, scheduler")
    assert record["leads_to"]["events"] == 1
    assert record["leads_to"]["invariant"] == "placeholders_are_samples_in_flight"
    assert record["leads_to"]["severity"] == "crash"
    assert called("replay", record["trace"]).startswith("VIOLATED, reproduced on machine model")
    record = json.loads(called("explore", "--fault", "double_free", "--json"))
    assert record["leads_to"] is None
