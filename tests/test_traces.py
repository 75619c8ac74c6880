"""A trace comes back from its file as it was, and replays: the same, or it says where not."""

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kvproof.model.events import Event, Evict, Schedule, bare, stimulus
from kvproof.model.faults.fault import Fault
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import cluster_named
from kvproof.model.reference.apply import apply, stimuli
from kvproof.model.severity import Severity
from kvproof.model.state import initial
from kvproof.model.traces.state_diff import diff, flat, patched
from kvproof.model.traces.trace import Trace, write, write_in
from kvproof.model.traces.trace_reader import read
from kvproof.strategies.conformance.replay import record, replay
from kvproof.strategies.verdict import Verdict
from tests.cover import TENTH, others_nightly
from tests.planted import Mistakes, trace_of, under

TESTDATA = Path(__file__).parent / "testdata"


class Choosing(ModelMachine):
    """The spec behind another name: it is given stimuli and no choices, as live vLLM is."""

    name = "chooses"


def taken(trace: Trace, index: int) -> Event:
    """What the machine without a fault does at an event, after those before it."""
    machine = ModelMachine(trace.cluster)
    for event in trace.events[:index]:
        machine.take(event)
    return machine.take(stimulus(trace.events[index])).event


def of(trace: Trace) -> list[Fault]:
    """The faults of a trace."""
    return [FAULTS[name] for name in trace.faults]


@cache
def healthy() -> Trace:
    """A run of the spec that breaks nothing: always the last stimulus but one, for variety."""
    cluster = cluster_named("pd")
    machine = ModelMachine(cluster)
    taken = []
    for index in range(12):
        offered = machine.stimuli()
        taken.append(machine.take(offered[index % len(offered)]).event)
    changes = record(ModelMachine(cluster), tuple(taken))
    assert changes is not None
    return Trace(cluster, tuple(taken), changes)


def test_states_are_flattened_without_loss() -> None:
    """Different states have different flat forms, and a difference leads from one to the other."""
    cluster = cluster_named("pd")
    seen = {initial(cluster)}
    for _ in range(6):
        seen |= {apply(cluster, s, e).after for s in seen for e in stimuli(cluster, s)}
    states = sorted(seen, key=repr)[:: max(1, len(seen) // 60)]
    flats = [flat(state) for state in states]
    assert len({json.dumps(f) for f in flats}) == len(states) > 20
    for before in flats[:20]:
        for after in flats:
            assert patched(before, diff(before, after)) == after
            assert (diff(before, after) == ({}, ())) == (before == after)


@pytest.mark.parametrize("fault", others_nightly(FAULTS, TENTH))
def test_the_trace_of_a_fault_replays_from_its_file(fault: str, tmp_path: Path) -> None:
    trace = trace_of(fault)
    path = write_in(tmp_path, fault, trace)
    again = read(path)
    assert again == trace
    replayed = under(of(trace), replay, ModelMachine(trace.cluster), again)
    assert replayed.differs is None
    assert replayed.outcome.finding == trace.finding
    severity = replayed.outcome.severity
    assert severity is not None
    assert replayed.exit_code(severity) == 1
    assert replayed.exit_code() == (severity <= Severity.LEAK)


@pytest.mark.parametrize("fault", others_nightly(FAULTS, TENTH))
def test_the_finding_of_a_fault_is_not_shown_without_the_fault(fault: str) -> None:
    """The machine chooses itself, as real vLLM does; a shorter hit, say, is allowed but not its own
    choice. Where the rest of the run is not possible without the mistake, nothing is known."""
    trace = trace_of(fault)
    replayed = replay(Choosing(trace.cluster), trace)
    assert replayed.differs is not None
    assert replayed.outcome.finding is None
    assert replayed.outcome.verdict in (Verdict.SAMPLED, Verdict.UNKNOWN)
    assert replayed.exit_code() == replayed.outcome.verdict.exit_code


def test_a_trace_without_a_finding_replays_as_one_sample(tmp_path: Path) -> None:
    """Without its states, the events are still compared."""
    trace = healthy()
    path = tmp_path / "t.jsonl"
    write(path, trace)
    stateless = dataclasses.replace(trace, changes=None)
    assert list(stateless.states()) == []
    for each in read(path), stateless:
        replayed = replay(ModelMachine(trace.cluster), each)
        assert replayed.differs is None
        assert replayed.outcome.verdict is Verdict.SAMPLED
        assert replayed.outcome.coverage == {"examples": 1, "steps": 12}
        assert replayed.exit_code() == 0


def differs(trace: Trace, faults: Mistakes = ()) -> tuple[int, str, Any, Any]:
    """Where a replay on the model differs: the step, the field, and both values."""
    found = under(faults, replay, ModelMachine(trace.cluster), trace).differs
    assert found is not None
    return found.step, found.field, found.recorded, found.replayed


def test_a_replay_reports_a_changed_state_with_both_values() -> None:
    trace = healthy()
    changes = list(trace.changes or ())
    step = next(i for i, c in enumerate(changes) if "/engines/P/free" in c.changed)
    was = changes[step].changed["/engines/P/free"]
    wrong = {**changes[step].changed, "/engines/P/free": [99]}
    changes[step] = changes[step]._replace(changed=wrong)
    other = dataclasses.replace(trace, changes=tuple(changes))
    assert differs(other) == (step + 1, "/engines/P/free", [99], was)


def test_a_replay_reports_an_event_and_a_choice_that_the_spec_forbids() -> None:
    trace = dataclasses.replace(healthy(), changes=None)
    events = (trace.events[0], Evict("P", 0), *trace.events[1:])
    *where, why = differs(dataclasses.replace(trace, events=events))
    assert where == [2, "event", "taken"]
    assert "not free" in why
    index, event = next(
        (i, e) for i, e in enumerate(trace.events) if isinstance(e, Schedule) and e.chose
    )
    twice = replace(event, chose=(*event.chose, event.chose[0]))
    events = (*trace.events[:index], twice, *trace.events[index + 1 :])
    assert differs(dataclasses.replace(trace, events=events))[0] == index + 1


def test_a_replay_reports_a_finding_that_the_trace_lacks() -> None:
    trace = trace_of("front_trim")
    silent = dataclasses.replace(trace, finding=None)
    assert differs(silent, of(trace))[:3] == (len(trace.events), "finding", "none")


def test_a_machine_that_chooses_answers_at_the_last_event_alone() -> None:
    """Where it does otherwise at the last event, up to there its run is the one of the trace: the
    finding is not shown again. Where it does so before, its run is another one."""
    trace = trace_of("no_align_split")
    index = next(
        i
        for i, event in enumerate(trace.events)
        if isinstance(event, Schedule) and bare(event) != bare(taken(trace, i))
    )
    cut = dataclasses.replace(trace, events=trace.events[: index + 1], changes=None)
    answered = replay(Choosing(trace.cluster), cut)
    assert answered.outcome.verdict is Verdict.SAMPLED
    assert answered.parted is not None
    assert answered.parted.step == index + 1
    follows = (Schedule(trace.events[index].engine),)
    longer = dataclasses.replace(cut, events=(*cut.events, *follows))
    parted = replay(Choosing(trace.cluster), longer)
    assert (parted.outcome.verdict, parted.exit_code()) == (Verdict.UNKNOWN, 3)
    assert parted.parted == answered.parted
    refused = replay(ModelMachine(trace.cluster), cut)
    assert refused.outcome.verdict is Verdict.UNKNOWN
    assert refused.parted is not None
    assert refused.parted.why


def test_a_replay_does_not_follow_events_after_the_death_of_an_engine() -> None:
    trace = trace_of("fewer_blocks_than_held_dies")
    assert trace.finding is not None
    finding = dataclasses.replace(trace.finding, invariant="references_are_exact")
    more = (*trace.events, trace.events[0])
    other = dataclasses.replace(trace, events=more, finding=finding, changes=None)
    replayed = under(of(trace), replay, ModelMachine(trace.cluster), other)
    assert (replayed.outcome.verdict, replayed.exit_code()) == (Verdict.UNKNOWN, 3)
    assert replayed.parted is not None
    assert replayed.parted.step == len(more)
    assert " died before: " in replayed.parted.why


def test_a_replay_reports_that_a_stuck_run_finishes() -> None:
    trace = trace_of("align_split_during_load")
    assert trace.finding is not None
    assert trace.finding.invariant == "every_request_can_finish"
    fine = dataclasses.replace(healthy(), finding=trace.finding)
    assert differs(fine)[:2] == (len(fine.events), "finding")


def test_the_model_replays_a_trace_of_real_vllm_up_to_its_defect() -> None:
    trace = read(TESTDATA / "vllm_0.32.0_mamba_counter.jsonl")
    assert (trace.machine, trace.vllm) == ("live", "0.32.0")
    assert trace.finding is not None
    assert trace.finding.invariant == "counter_counts_only_cached"
    where = "/engines/D/requests/r1/num_cached_blocks"
    assert differs(trace) == (15, where, [0, 1], [0, 0])


def test_the_same_trace_is_written_once(tmp_path: Path) -> None:
    first, other = healthy(), dataclasses.replace(healthy(), seed=1)
    paths = [write_in(tmp_path, "same", trace) for trace in (first, first, other, first, other)]
    assert [path.name for path in paths] == [
        *("same.jsonl", "same.jsonl", "same-2.jsonl", "same.jsonl", "same-2.jsonl")
    ]
    assert len([*tmp_path.iterdir()]) == 2
