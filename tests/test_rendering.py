"""Golden transcripts: what a person reads. Rewrite them with `pytest --rewrite`, and only commit
the changes if you understand them."""

import io
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kvproof.invariants.registry import INVARIANTS
from kvproof.model.events import Complete
from kvproof.model.faults.registry import fault_named
from kvproof.model.finding import Finding
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import cluster_named
from kvproof.model.traces.trace import Trace
from kvproof.model.traces.trace_reader import read
from kvproof.reports.output.base import encoded
from kvproof.reports.output.search import Explored
from kvproof.reports.output.verdict import verdict_output
from kvproof.reports.terminal import Extra, render, shell_word, show
from kvproof.strategies.conformance.replay import record
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.verdict import Outcome, Verdict
from tests.planted import under
from tests.reasons import said

Golden = Callable[[str, str], None]


def trace_of(fault: str) -> Trace:
    chosen = fault_named(fault)
    faults = [chosen]
    cluster = cluster_named(chosen.cluster)
    outcome = under(faults, explore, cluster)
    changes = under(faults, record, ModelMachine(cluster), outcome.events)
    return Trace(cluster, outcome.events, changes, outcome.finding, (fault,), seed=7)


@pytest.mark.parametrize(
    "fault", ["front_trim", "decode_loads_whole_prompt", "align_split_during_load"]
)
def test_transcript(fault: str, golden: Golden) -> None:
    golden(f"{fault}.txt", render(trace_of(fault), Extra(Path("kvproof-traces/example.jsonl"))))


LIVE = Path(__file__).parent / "testdata" / "vllm_0.32.0_mamba_counter.jsonl"
"""Taken from real vLLM 0.32.0, where the cached-block counter counts null blocks (vllm#42547)."""


def test_a_trace_of_real_vllm_is_shown_without_vllm(golden: Golden) -> None:
    golden("vllm_0.32.0_mamba_counter.txt", render(read(LIVE)))


@pytest.mark.parametrize(
    "name",
    [
        *[b"a b.jsonl", b"it's.jsonl", b"a\x1b[31m\n.jsonl", b"\xff\xfe'9", b"\\x41.", b"x" * 250],
        "é漢 .jsonl".encode(),
    ],
)
def test_a_shell_reads_the_path_of_the_command_back(name: bytes) -> None:
    word = shell_word(Path(os.fsdecode(name)))
    assert word.isprintable()
    shell = ["bash", "-c", f"printf %s {word}"]
    assert subprocess.run(shell, capture_output=True, check=True).stdout == name


def test_no_colour_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = io.StringIO()
    show(out, trace_of("front_trim"))
    assert out.getvalue() == render(trace_of("front_trim"))
    assert "\x1b" not in out.getvalue()


VIOLATED = Outcome(
    Verdict.VIOLATED,
    {"states_distinct": 5},
    (Complete("P"),),
    Finding("pool_adds_up", said("a < b", "b < a")),
    seconds=1.5,
)


def test_the_json_object_of_a_violation() -> None:
    cluster = cluster_named("pd")
    output = verdict_output(
        Explored,
        VIOLATED,
        cluster=cluster,
        faults=["front_trim"],
        seed=3,
        trace=Path("t.jsonl"),
    )
    record = json.loads(encoded(output))
    assert record.pop("config")["name"] == "pd"
    assert record == {
        "command": "explore",
        "verdict": "VIOLATED",
        "exit_code": 1,
        "faults": [{"name": "front_trim"}],
        "machine": "model",
        "seed": 3,
        "seconds": 1.5,
        "states_distinct": 5,
        "invariant": "pool_adds_up",
        "must_be_true": INVARIANTS["pool_adds_up"].name,
        "origin": INVARIANTS["pool_adds_up"].origin,
        "severity": "wrong tokens",
        "reasons": ["a < b", "b < a"],
        "signature": {"check": "pool_adds_up", "event": "Complete", "feature": ""},
        "trace": "t.jsonl",
        "trace_length": 1,
        "leads_to": None,
    }
