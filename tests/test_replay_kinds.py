"""A trace replays on both machines, on the one that it is of, and on another vLLM. That each kind
of finding does so with its mistake and not without is tested with the mistakes
(`test_live_faults`)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvproof.cli.main import main
from kvproof.model.counting_abstraction import relation
from kvproof.model.counting_abstraction.table import GroupTable
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.traces.trace import Trace, write
from kvproof.model.traces.trace_reader import read
from kvproof.strategies.conformance.replay import record
from kvproof.strategies.count_conformance import CONFORMANCE
from kvproof.strategies.sampling.stateful import sample

FINDINGS = Path(__file__).parent.parent / "findings"

pytestmark = pytest.mark.live


def replays(path: Path) -> tuple[int, int]:
    """The exit codes of a replay on live vLLM and on the model, where each finding counts."""
    command = ["replay", str(path), "--fail-on", "bookkeeping", "--machine"]
    live, model = main([*command, "live"]), main([*command, "model"])
    assert {live, model} <= {0, 1, 3}
    return live, model


def test_a_trace_replays_on_its_own_machine(capsys: pytest.CaptureFixture[str]) -> None:
    path = FINDINGS / "stray_report_dies" / "trace.jsonl"
    assert main(["replay", str(path)]) == 1
    assert capsys.readouterr().out.startswith("VIOLATED, reproduced on machine live after ")
    assert replays(path) == (1, 0)


def test_a_step_that_the_proofs_do_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(GroupTable, "counting", lambda _self, _sizes, table, _upto: table)
        relation._reaches.cache_clear()
        found = sample(CLUSTERS["full"], ModelMachine, examples=20)
        assert found.finding is not None
        assert found.finding.invariant == CONFORMANCE
        assert found.cluster is not None
        changes = record(ModelMachine(found.cluster), found.events)
        path = tmp_path / "kept.jsonl"
        write(path, Trace(found.cluster, found.events, changes, found.finding))
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
