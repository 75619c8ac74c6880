"""The listed findings, exactly: each recorded trace does on live vLLM what it did, the spec forbids
or contradicts it, and the model with the fault that stands for it does the same."""

from pathlib import Path

import pytest

from kvproof.model.faults.fault import rules_with
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.reports.trace_reader import read
from kvproof.strategies.refinement import Shadowed
from kvproof.strategies.replay import replay
from kvproof.strategies.run import Violated

FOLDER = Path(__file__).parent.parent / "reports" / "findings"
FINDINGS = sorted(path.stem for path in FOLDER.glob("*.jsonl"))


@pytest.mark.live
@pytest.mark.parametrize("name", FINDINGS)
def test_live_vllm_shows_it_again(name: str) -> None:
    from kvproof.live.machine import LiveMachine

    trace = read(FOLDER / f"{name}.jsonl")
    assert trace.finding is not None
    assert trace.finding.invariant in FAULTS[name].breaks
    replayed = replay(LiveMachine(trace.cluster), trace)
    assert replayed.differs is None
    assert replayed.outcome.finding == trace.finding


@pytest.mark.live
@pytest.mark.parametrize("name", FINDINGS)
def test_without_its_fault_the_model_does_not_explain_it(name: str) -> None:
    from kvproof.live import availability
    from kvproof.live.deviations import deviations
    from kvproof.live.machine import LiveMachine

    trace = read(FOLDER / f"{name}.jsonl")
    others = [f for f in deviations(availability.installed()) if f.name != name]
    machine = Shadowed(LiveMachine(trace.cluster), others)
    differed = None
    try:
        for event in trace.events:
            machine.take(event)
    except Violated as violated:
        differed = violated.finding.invariant
    # Either the model beside vLLM no longer does the same, or what breaks is not accounted for.
    assert trace.finding is not None
    if differed is None:
        assert not machine.expects(trace.finding)
    else:
        assert differed == "refines_the_model"


@pytest.mark.live
def test_the_listed_findings_are_the_deviations_of_this_release() -> None:
    from kvproof.live import availability
    from kvproof.live.deviations import DEVIATIONS

    assert sorted(DEVIATIONS[availability.installed()]) == FINDINGS


@pytest.mark.parametrize("name", FINDINGS)
def test_every_finding_is_told(name: str) -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert f"{name}.jsonl" in text
    assert FAULTS[name].breaks[0] in text


@pytest.mark.parametrize("name", FINDINGS)
def test_the_model_with_the_listed_faults_replays_it(name: str) -> None:
    from kvproof.live.deviations import DEVIATIONS

    trace = read(FOLDER / f"{name}.jsonl")
    assert trace.vllm is not None
    faults = [FAULTS[f] for f in DEVIATIONS[trace.vllm]]
    replayed = replay(ModelMachine(trace.cluster, rules_with(faults)), trace)
    if trace.finding is not None and trace.finding.invariant == "engine_survives":
        # That the engine dies here is the model's; the words are vLLM's own.
        assert replayed.differs is not None
        assert replayed.differs.step == len(trace.events)
        assert replayed.differs.field in [f"/engines/{e.name}/dead" for e in trace.cluster.engines]
        assert replayed.differs.replayed
        return
    assert replayed.differs is None
    assert replayed.outcome.finding == trace.finding
