"""The findings on live vLLM: each trace shows its own again, and its entry excuses it alone."""

import dataclasses
import itertools

import pytest

from kvproof.invariants.check import broken
from kvproof.invariants.registry import CHECKS, INVARIANTS
from kvproof.live.known.facts import seen
from kvproof.live.known.ingredients import without
from kvproof.live.known.registry import KNOWN, recognised
from kvproof.model.because import About
from kvproof.model.config import EngineConfig
from kvproof.model.events import stimulus
from kvproof.model.faults.registry import FAULTS
from kvproof.model.finding import Finding
from kvproof.model.machine import ModelMachine
from kvproof.model.presets.random_clusters import random_cluster
from kvproof.model.step import Effects, Step
from kvproof.model.traces.restored import restored
from kvproof.model.traces.trace import Trace
from kvproof.model.traces.trace_reader import read
from kvproof.reports.ledger.of_trace import of_trace
from kvproof.reports.terminal import Extra, show
from kvproof.reports.trace.functions import at_fault
from kvproof.strategies.conformance.replay import replay
from kvproof.strategies.conformance.watched import holds
from kvproof.strategies.drain import drain
from kvproof.strategies.run import Run, Violated
from tests.findings import FINDINGS, FOLDER, MODELLED, trace_of
from tests.mistakes import TOLD
from tests.planted import under
from tests.printed import printed
from tests.watching import Counting, known_faults, live_machine, watched


def follow(machine: Counting, trace: Trace) -> list[Step]:
    """Take all events of a trace, and drive the run to its end where its finding is about that.
    Returns the steps of the events; a check that does not hold raises Violated."""
    run = Run(machine, CHECKS.values())
    for event in trace.events:
        run.take_one(stimulus(event))
    steps = [*run.steps]
    assert trace.finding is not None
    if CHECKS[trace.finding.invariant].kind == "eventually":
        drain(run, trace.finding.invariant)
    machine.close()
    return steps


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
    """Each can be asked at each step, also where the finding is about no request and no block."""
    trace = trace_of(name)
    machine = watched(trace.cluster)
    steps = follow(machine, trace)
    assert machine.met[name] > 0
    for step, engine in itertools.product(steps, trace.cluster.engines):
        for about in ({}, {"group": 0}, {"block": 1}):
            for known in KNOWN.values():
                known.present(trace.cluster, step, About(engine.name, **about))


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
@pytest.mark.parametrize("name", [name for name, each in KNOWN.items() if each.needs])
def test_without_its_ingredient_a_finding_is_not_shown(name: str) -> None:
    """So its cause was at work, where no step shows it."""
    trace, known = trace_of(name), KNOWN[name]
    assert trace.finding is not None
    cluster, check = trace.cluster, trace.finding.invariant
    make = type(live_machine(cluster))
    assert not holds(make, cluster, trace.events, check)
    for ingredient in known.needs:
        cured = ingredient(cluster)
        assert cured is not None
        assert ingredient(cured) is None
        assert holds(make, cured, trace.events, check)
        assert not holds(make, cured, (), check), "nothing was judged"


def test_every_random_cluster_can_be_without_unequal_blocks() -> None:
    """Where the cause cannot be taken away, the known finding is told as a new one."""
    clusters = map(random_cluster, range(400))
    mixed = [each for each in clusters if any(map(splits_small, each.engines))]
    assert len(mixed) > 20
    assert [each.name for each in mixed if without("unequal_block_sizes", each) is None] == []


def splits_small(cfg: EngineConfig) -> bool:
    """Whether another group of an engine has smaller blocks than its aligned Mamba group."""
    state = cfg.aligned_group
    return state is not None and min(cfg.block_sizes) < state.block_size


@pytest.mark.live
def test_another_mistake_that_breaks_the_same_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that end anywhere break the same check of the same kind of group as chunks that end at
    the smallest block: also where all blocks are of one size."""
    name, check = "split_at_the_smallest_block", "cached_block_holds_its_key"
    trace = trace_of(name)
    known = watched(trace.cluster)
    follow(known, trace)
    assert known.met[name]
    TOLD["no_align_split"].patch(monkeypatch)
    machine = watched(trace.cluster)
    with pytest.raises(Violated) as raised:
        follow(machine, trace)
    assert raised.value.finding.invariant == check
    assert machine.alike == {check: name}


# On live vLLM and on the model


def same(one: Finding | None, other: Finding | None) -> bool:
    """Whether two findings are of the same check and about the same. The words may be newer."""
    assert one is not None
    assert other is not None
    return (one.invariant, one.about) == (other.invariant, other.about)


@pytest.mark.live
@pytest.mark.parametrize("name", FINDINGS)
def test_live_vllm_shows_it_again(name: str) -> None:
    trace = trace_of(name)
    replayed = replay(live_machine(trace.cluster), trace)
    assert replayed.differs is None
    assert same(replayed.outcome.finding, trace.finding)


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


# Without vLLM


@pytest.mark.parametrize("name", FINDINGS)
def test_a_finding_is_recognised_from_its_trace(name: str) -> None:
    """By the same signature and cause as in a search, or not at all, but as no other one. The
    function at fault is then known."""
    trace = read(FOLDER / name / "trace.jsonl")
    known = recognised(trace)
    shows = trace.machine == "live" and name not in SEEN_IN_EFFECTS
    assert known is (KNOWN[name] if shows else None)
    if known is not None:
        text = " ".join(printed(show, trace, Extra(known=known)).split())
        assert text.count(f"Known finding: {name}: {known.says}") == 2
        (function,) = at_fault((), known)
        assert f"In vLLM, at fault: {function}" in text
        assert of_trace(trace, known=known)["at_fault"] == [function]
    assert recognised(dataclasses.replace(trace, machine="model")) is None


SEEN_IN_EFFECTS = {
    "copied_before_filled",
    "deeper_state_gives_up_hit",
    "eagle_drop_before_the_last_token",
    "embeddings_not_loaded",
    "fewer_than_none_predicted",
    "full_hit_gives_up_load",
    "report_spans_skipped_blocks",
    "shrunk_hit_is_not_matched_again",
    "window_of_load_not_reserved",
    "superseded_state_reserved",
    "window_prefix_aligned_before_drop",
}
"""Findings whose cause shows only in what a step does, which is not in a trace."""


def test_a_block_of_a_pair_is_named_as_the_tables_name_it() -> None:
    """With kernel blocks, the numbers of a pair are not those of the block tables."""
    trace = read(FOLDER / "end_trim_across_ratios" / "trace.jsonl")
    before, after = list(map(restored, trace.states()))[-2:]
    step = Step(before, trace.events[-1], Effects(), after)
    found = next(broken(trace.cluster, step, [INVARIANTS["paired_offsets_are_equal"]]))
    assert found.sentences[1] == (
        "it is read from kernel block 3 of P (in its block 1), whose tokens start at 2"
    )
