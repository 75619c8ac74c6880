"""The listed findings, exactly: each recorded trace does on live vLLM what it did, and so does the
model with the faults of the same names. See test_deviations for what excuses them."""

from pathlib import Path

import pytest

from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.model.traces.trace_reader import read
from kvproof.strategies.conformance.replay import replay
from tests.watching import known_rules

FOLDER = Path(__file__).parent.parent / "findings"
FINDINGS = sorted(path.parent.name for path in FOLDER.glob("*/trace.jsonl"))


@pytest.mark.live
@pytest.mark.parametrize("name", FINDINGS)
def test_live_vllm_shows_it_again(name: str) -> None:
    from kvproof.live.machine import LiveMachine

    trace = read(FOLDER / name / "trace.jsonl")
    assert trace.finding is not None
    assert trace.finding.invariant in FAULTS[name].breaks
    replayed = replay(LiveMachine(trace.cluster), trace)
    assert replayed.differs is None
    assert replayed.outcome.finding == trace.finding


@pytest.mark.parametrize("name", FINDINGS)
def test_every_finding_is_told(name: str) -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert f"`{name}`" in text
    assert FAULTS[name].breaks[0] in text


@pytest.mark.parametrize("name", FINDINGS)
def test_the_model_with_the_faults_of_these_names_replays_it(name: str) -> None:
    trace = read(FOLDER / name / "trace.jsonl")
    replayed = replay(ModelMachine(trace.cluster, known_rules()), trace)
    if trace.finding is not None and trace.finding.invariant == "engine_survives":
        # That the engine dies here is the model's; the words are vLLM's own.
        assert replayed.differs is not None
        assert replayed.differs.step == len(trace.events)
        assert replayed.differs.field in [f"/engines/{e.name}/dead" for e in trace.cluster.engines]
        assert replayed.differs.replayed
        return
    assert replayed.differs is None
    assert replayed.outcome.finding == trace.finding
