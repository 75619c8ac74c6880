"""Whatever kind of finding a trace has, it replays on both machines, with what it was found with
and without."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvproof.cli.main import main
from kvproof.invariants.registry import CHECKS
from kvproof.model.counting_abstraction import relation
from kvproof.model.counting_abstraction.table import GroupTable
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.traces.trace import Trace, write
from kvproof.model.traces.trace_reader import read
from kvproof.strategies.conformance.replay import record
from kvproof.strategies.count_conformance import CONFORMANCE
from kvproof.strategies.sampling.stateful import sample
from kvproof.strategies.verdict import Outcome
from tests.mistakes import MISTAKES
from tests.watching import live_machine, watched

FINDINGS = Path(__file__).parent.parent / "findings"

pytestmark = pytest.mark.live


def replays(path: Path) -> tuple[int, int]:
    """The exit codes of a replay on live vLLM and on the model, where each finding counts."""
    command = ["replay", str(path), "--fail-on", "bookkeeping", "--machine"]
    live, model = main([*command, "live"]), main([*command, "model"])
    assert {live, model} <= {0, 1, 3}
    return live, model


def kept(folder: Path, machine: str, outcome: Outcome) -> Path:
    """The file of a trace of what was found."""
    assert outcome.cluster is not None
    fresh = live_machine(outcome.cluster) if machine == "live" else ModelMachine(outcome.cluster)
    changes = record(fresh, outcome.events)
    trace = Trace(outcome.cluster, outcome.events, changes, outcome.finding, machine=machine)
    write(folder / "kept.jsonl", trace)
    return folder / "kept.jsonl"


@pytest.mark.parametrize("kind", ["always", "guard"])
def test_an_invariant_or_a_guard_that_a_mistake_breaks(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = [check for check in CHECKS.values() if check.kind == kind]
    with monkeypatch.context() as patch:
        MISTAKES["untouched_hits"].patch(patch)
        cluster = CLUSTERS[FAULTS["untouched_hits"].cluster]
        found = sample(cluster, watched, checks, examples=60, shrink=False)
        assert found.finding is not None
        path = kept(tmp_path, "live", found)
        assert replays(path)[0] == 1
    assert replays(path) == (0, 0)


@pytest.mark.parametrize(
    ("name", "finding"),
    [
        ("write_awaited_for_ever", "every_request_can_finish"),
        ("stray_report_dies", "engine_survives"),
        ("longer_list_dies_across_ratios", "engine_survives"),
    ],
)
def test_a_run_without_end_and_an_engine_that_dies(name: str, finding: str) -> None:
    path = FINDINGS / name / "trace.jsonl"
    found = read(path).finding
    assert found is not None
    assert found.invariant == finding
    live, model = replays(path)
    assert live == 1
    assert model != 1


def test_a_trace_replays_on_its_own_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(FINDINGS / "stray_report_dies" / "trace.jsonl")]) == 1
    assert capsys.readouterr().out.startswith("VIOLATED, reproduced on machine live after ")


def test_a_step_that_the_proofs_do_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(GroupTable, "counting", lambda _self, _sizes, table, _upto: table)
        relation._reaches.cache_clear()
        found = sample(CLUSTERS["full"], ModelMachine, examples=20)
        assert found.finding is not None
        assert found.finding.invariant == CONFORMANCE
        path = kept(tmp_path, "model", found)
        assert replays(path) == (1, 1)
    relation._reaches.cache_clear()
    assert replays(path) == (0, 0)


def test_a_trace_of_another_vllm_is_replayed_on_that_one(
    run: Any, refused: Any, tmp_path: Path
) -> None:
    """As a gate writes it of head: the installed vLLM would answer for another tree."""
    finding = FINDINGS / "superseded_state_reserved" / "trace.jsonl"
    trace = replace(read(finding), tree=str(tmp_path / "head"))
    write(tmp_path / "of_head.jsonl", trace)
    command = f"--machine live --vllm {tmp_path / 'head'}"
    assert command in run("report", "of_head.jsonl")[1]
    said = refused("replay", "of_head.jsonl")
    assert f"is of the vLLM in {tmp_path / 'head'}, which is not there any more. Use --vllm" in said
    (tmp_path / "head" / "vllm").mkdir(parents=True)  # a folder in which no vLLM is
    assert str(tmp_path / "head") in refused("replay", "of_head.jsonl")
