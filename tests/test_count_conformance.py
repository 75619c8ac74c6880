"""Conformance to the proofs: a step that is not a transition of a proved system is a finding."""

from typing import Any

import pytest
from msgspec.structs import replace

from kvproof.invariants.check import broken
from kvproof.model import config, planting
from kvproof.model.counting_abstraction import projection, relation
from kvproof.model.counting_abstraction.table import GroupTable, TableCounts
from kvproof.model.counting_abstraction.transfer import TransferCounts
from kvproof.model.events import (
    Compute,
    LeaseExpire,
    Schedule,
    Submit,
    TransferDone,
    TransferLost,
)
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.count_conformance import CONFORMANCE, conformance_checks
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.run import Run, Violated
from kvproof.strategies.verdict import Verdict
from tests.cover import TENTH, others_nightly
from tests.in_vllm import around
from tests.planted import asked_under, under
from tests.watching import known_faults, watched


@pytest.fixture(autouse=True)
def forgotten():
    """What was worked out with a planted mistake is not kept."""
    relation._reaches.cache_clear()
    yield
    relation._reaches.cache_clear()


def shrinks(right: Any, self: GroupTable, sizes: Any, table: TableCounts, end: int) -> TableCounts:
    after = right(self, sizes, table, end)
    return after._replace(length=table.length - (after.length - table.length))


def without_sign(right: Any, *given: Any) -> TableCounts:
    table = right(*given)
    return table._replace(null=-table.null)


def shifted(right: Any, *given: Any) -> TransferCounts:
    found = right(*given)
    return found._replace(first_remote=found.first_remote + found.pairs_remote)


COUNTED = "kvproof.model.counting_abstraction"
WRONG = {
    "relation": (
        around(f"{COUNTED}.table:GroupTable.grown", shrinks),
        *("full", ("r0 on E, group 0 (full)", "compute(tokens", "length")),
    ),
    "projection of tables": (
        around(f"{projection.__name__}:table_counts", without_sign),
        *("window", ("null -1",)),
    ),
    "projection of transfers": (
        around(f"{projection.__name__}:transfer_counts", shifted),
        *("pd-full", ("the transfer of", "load(hit 0", "first_remote")),
    ),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_turns_the_explorer_red(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, preset, words = WRONG[what]
    plant(monkeypatch)
    outcome = explore(CLUSTERS[preset])
    assert outcome.verdict is Verdict.VIOLATED
    assert outcome.finding is not None
    assert outcome.finding.invariant == CONFORMANCE
    assert [word for word in words if word not in outcome.finding.sentence] == []


def test_a_step_nobody_takes_is_outside() -> None:
    cluster = CLUSTERS["full"]
    machine = ModelMachine(cluster)
    machine.take(machine.stimuli()[0])
    step = machine.take(Schedule("E"))
    assert not list(broken(cluster, step, conformance_checks()))
    chose = step.event.chose or ()
    fewer = tuple(replace(c, tokens=1) if isinstance(c, Compute) else c for c in chose)
    wrong = step._replace(event=Schedule("E", fewer))
    [found] = broken(cluster, wrong, conformance_checks())
    assert "compute(tokens 1)" in found.sentences[2]
    assert "which the proofs do not allow" in found.sentences[3]


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", others_nightly(FAULTS, TENTH))
def test_a_faulty_model_follows_the_relation_with_its_fault(fault: str) -> None:
    found = under([FAULTS[fault]], explore, CLUSTERS[FAULTS[fault].cluster]).finding
    assert found is not None
    assert found.invariant != CONFORMANCE


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "fault", ["truncation_without_guard", "window_of_loaded_tokens", "front_trim", "double_free"]
)
def test_a_faulty_step_is_outside_the_relation_of_the_spec(fault: str) -> None:
    each = FAULTS[fault]
    right = {name: planting.function_named(name) for name in each.replaces}
    checks = asked_under(right, conformance_checks())
    outcome = under([each], explore, CLUSTERS[each.cluster], checks)
    assert outcome.finding is not None
    assert outcome.finding.invariant == CONFORMANCE


@pytest.mark.live
@pytest.mark.parametrize("name", ["pd", "pd-window", "hybrid"])
def test_a_wrong_relation_turns_a_live_run_red(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def driven() -> None:
        run = Run(
            watched(CLUSTERS[name]), asked_under(known_faults(CLUSTERS[name]), conformance_checks())
        )
        for _ in range(12):
            if not run.stimuli:
                break
            run.take(run.stimuli[-1])

    driven()
    monkeypatch.setattr(GroupTable, "counting", lambda _self, _sizes, table, _upto: table)
    relation._reaches.cache_clear()
    with pytest.raises(Violated, match=CONFORMANCE):
        driven()


def test_a_lost_read_of_a_request_that_hit_is_tied_too() -> None:
    lists = config.EngineConfig("P", (config.Group("full", 2),), 9, "prefill")
    cluster = config.Cluster(
        "lost",
        (lists, replace(lists, name="D", role="decode")),
        (config.Job("r0", "abcd"), config.Job("r1", "abcdef")),
        losses=True,
    )
    run = Run(ModelMachine(cluster), conformance_checks())
    for event in (
        *(Submit("P", "r0"), Schedule("P"), Submit("D", "r0"), Schedule("D"), TransferDone("r0")),
        *(Schedule("D"), Submit("P", "r1"), Schedule("P"), Submit("D", "r1"), Schedule("D")),
        *(TransferLost("r1"), LeaseExpire("r1")),
    ):
        run.take(event)
    pairs = run.steps[-1].before.transfers[0].pairs
    assert pairs[0][1][0] == 3, "the first block P sends is not the first of its table"
