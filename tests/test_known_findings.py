"""A signature is narrow: each finding on live vLLM is excused by its own known finding and by no
other, and no mistake that is put back into live vLLM is excused at all."""

import pytest

from kvproof.invariants.registry import CHECKS
from kvproof.live.known.facts import seen
from kvproof.live.known.registry import KNOWN
from kvproof.model.because import About
from kvproof.model.events import stimulus
from kvproof.model.faults.registry import FAULTS
from kvproof.model.presets import CLUSTERS
from kvproof.model.traces.trace import Trace
from kvproof.strategies.drain import drain
from kvproof.strategies.run import Run, Violated
from kvproof.strategies.sampling.stateful import sample
from kvproof.strategies.verdict import Verdict
from tests.findings import FINDINGS, trace_of
from tests.mistakes import TOLD
from tests.watching import Counting, watched

SEEDS = 4


def follow(machine: Counting, trace: Trace) -> int:
    """Take all events of a trace, and drive the run to its end where its finding is about that.
    Returns the events taken; a check that does not hold raises Violated."""
    run = Run(machine, CHECKS.values())
    for event in trace.events:
        run.take_one(stimulus(event))
    assert trace.finding is not None
    if CHECKS[trace.finding.invariant].kind == "eventually":
        drain(run, trace.finding.invariant)
    machine.close()
    return len(trace.events)


def test_each_folder_is_a_known_finding_and_each_known_finding_a_folder() -> None:
    assert sorted(KNOWN) == FINDINGS


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_it_names_the_function_of_vllm(name: str) -> None:
    """Its own `in_vllm`, or that of the fault of its name."""
    assert KNOWN[name].in_vllm or (name in FAULTS and FAULTS[name].in_vllm)


@pytest.mark.parametrize("names", [("no_such_check", "Schedule"), ("references_are_exact", "Step")])
def test_a_signature_of_what_is_not_there_is_refused(names: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=r"Use its exact name\.$"):
        seen(*names)


@pytest.mark.live
@pytest.mark.parametrize("name", FINDINGS)
def test_a_finding_is_excused_by_its_known_finding(name: str) -> None:
    trace = trace_of(name)
    machine = watched(trace.cluster)
    assert follow(machine, trace) > 0
    assert machine.met[name] > 0


@pytest.mark.live
@pytest.mark.parametrize("name", FINDINGS)
def test_a_finding_may_be_about_no_request(name: str) -> None:
    """Nor about a block. Each known finding can be asked at each step: it raises no error."""
    trace = trace_of(name)
    run = Run(watched(trace.cluster), CHECKS.values())
    for event in trace.events:
        run.take_one(stimulus(event))
    for step in run.steps:
        for engine in trace.cluster.engines:
            for about in (
                About(engine.name),
                About(engine.name, group=0),
                About(engine.name, block=1),
            ):
                for known in KNOWN.values():
                    known.present(trace.cluster, step, about)
    run.machine.close()


@pytest.mark.live
@pytest.mark.parametrize("name", FINDINGS)
def test_no_other_known_finding_passes_for_it(name: str) -> None:
    """It is told at its event, or before, where another of its signatures shows."""
    trace = trace_of(name)
    assert trace.finding is not None
    with pytest.raises(Violated) as raised:
        follow(watched(trace.cluster, without=name), trace)
    violated = raised.value
    told = {f.invariant for f in (violated.finding, *violated.others)}
    assert told & {s.check for s in KNOWN[name].signatures}
    if CHECKS[trace.finding.invariant].kind != "eventually":
        assert len(violated.steps) < len(trace.events) or trace.finding.invariant in told


@pytest.mark.live
@pytest.mark.parametrize("name", TOLD)
def test_no_known_finding_passes_for_a_mistake(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    TOLD[name].patch(monkeypatch)
    for seed in range(SEEDS):
        outcome = sample(
            CLUSTERS[FAULTS[name].cluster],
            watched,
            seed=seed,
            examples=60,
            use_jobs=True,
            shrink=False,
        )
        if outcome.verdict is Verdict.VIOLATED:
            break
    assert outcome.verdict is Verdict.VIOLATED
    assert outcome.finding is not None
    assert outcome.finding.invariant in CHECKS
