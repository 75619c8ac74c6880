"""The listed findings, exactly: each recorded trace does on live vLLM what it did, and so does the
model with the faults of the same names. See test_known_findings for what excuses them."""

import pytest

from kvproof.model.faults.registry import FAULTS
from kvproof.model.finding import Finding
from kvproof.model.machine import ModelMachine
from kvproof.strategies.conformance.replay import replay
from tests.findings import FINDINGS, MODELLED, report_of, trace_of
from tests.planted import under
from tests.watching import known_faults


def same(one: Finding | None, other: Finding | None) -> bool:
    """Whether two findings are of the same check and about the same. The words may be newer."""
    assert one is not None
    assert other is not None
    return (one.invariant, one.about) == (other.invariant, other.about)


@pytest.mark.live
@pytest.mark.parametrize("name", FINDINGS)
def test_live_vllm_shows_it_again(name: str) -> None:
    from kvproof.live.machine import LiveMachine

    trace = trace_of(name)
    replayed = replay(LiveMachine(trace.cluster), trace)
    assert replayed.differs is None
    assert same(replayed.outcome.finding, trace.finding)


@pytest.mark.parametrize("name", FINDINGS)
def test_every_finding_is_told(name: str) -> None:
    finding = trace_of(name).finding
    assert finding is not None
    assert f"`{name}`" in report_of(name)
    assert finding.invariant in report_of(name)


@pytest.mark.parametrize("name", MODELLED)
def test_the_fault_of_this_name_breaks_it(name: str) -> None:
    finding = trace_of(name).finding
    assert finding is not None
    assert finding.invariant in FAULTS[name].breaks


@pytest.mark.parametrize("name", MODELLED)
def test_the_model_with_the_faults_of_these_names_replays_it(name: str) -> None:
    trace = trace_of(name)
    replayed = under(known_faults(trace.cluster), replay, ModelMachine(trace.cluster), trace)
    if trace.finding is not None and trace.finding.invariant == "engine_survives":
        # That the engine dies here is the model's; the words are vLLM's own.
        assert replayed.differs is not None
        assert replayed.differs.step == len(trace.events)
        assert replayed.differs.field in [f"/engines/{e.name}/dead" for e in trace.cluster.engines]
        assert replayed.differs.replayed
        return
    assert replayed.differs is None
    assert same(replayed.outcome.finding, trace.finding)
