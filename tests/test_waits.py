"""Who waits for what in a hang: facts of the state, in every fault that stops progress, and in the
findings of real vLLM."""

from pathlib import Path

import pytest

from kvproof.invariants.registry import INVARIANTS
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import cluster_named
from kvproof.model.step import BlockRefusal
from kvproof.model.traces.restored import restored
from kvproof.model.traces.trace import Trace
from kvproof.model.traces.trace_reader import read
from kvproof.reports.terminal import Extra, render
from kvproof.reports.trace.hang import hang_of
from kvproof.strategies.conformance.replay import record
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.waits import HangContext, Lack, waits
from tests.planted import under

FINDINGS = Path(__file__).parent.parent / "findings"
HANG = INVARIANTS["every_request_can_finish"]

LACKS = {
    "align_split_during_load": ("D", "r0", Lack.RULE),
    "deferred_requests_take_places": ("D", "r1", Lack.PLACE),
    "failed_load_holds_the_queue": ("D", "r0", Lack.BLOCKS),
    "failed_load_waits_on": ("D", "r0", Lack.REPORT),
    "held_is_loaded_again": ("P", "r1", Lack.REPORT),
    "hit_covers_whole_prompt": ("E", "r0", Lack.TOKENS),
    "hit_without_room_waits": ("E", "r0", Lack.RULE),
    "impossible_fit_waits": ("E", "r0", Lack.BLOCKS),
    "late_end_loses_session": ("E", "r1", Lack.QUEUE),
    "load_keeps_room_for_drafts": ("D", "r0", Lack.BLOCKS),
    "loads_take_the_last_blocks": ("D", "r0", Lack.BLOCKS),
    "one_token_prompt_truncated": ("P", "r0", Lack.RULE),
    "poisoned_step_counts": ("E", "r1", Lack.TOKENS),
    "read_is_not_reported": ("P", "r0", Lack.REPORT),
    "shared_prefix_boundary_inside_a_block": ("E", "r1", Lack.RULE),
    "waiting_sessions_hold_on": ("E", "r0", Lack.BLOCKS),
    "wide_block_never_crossed": ("E", "r0", Lack.TOKENS),
    "write_awaited_for_ever": ("D", "r0", Lack.REPORT),
}
"""For each fault that stops progress: who waits first, and what it lacks."""


def hang(fault: str) -> Trace:
    chosen = FAULTS[fault]
    faults, cluster = [chosen], cluster_named(chosen.cluster)
    outcome = under(faults, explore, cluster, [HANG])
    changes = under(faults, record, ModelMachine(cluster), outcome.events)
    assert changes is not None
    return Trace(cluster, outcome.events, changes, outcome.finding, (fault,))


def test_every_fault_that_stops_progress_is_in_the_table() -> None:
    assert {name for name, fault in FAULTS.items() if HANG.id in fault.breaks} == {*LACKS}


@pytest.mark.parametrize("fault", LACKS)
def test_a_hang_names_the_waiting_requests_and_what_they_lack(fault: str) -> None:
    trace = hang(fault)
    found = hang_of(trace)
    assert found is not None
    first = found.waits[0]
    assert (first.engine, first.request, first.lack) == LACKS[fault]
    assert trace.finding is not None
    assert trace.finding.sentences[0] == first.sentence
    assert (trace.finding.about.engine, trace.finding.about.request) == LACKS[fault][:2]
    text = " ".join(render(trace, Extra(Path("t.jsonl"))).split())
    assert found.refuses[0] in text
    if found.begins is not None:
        assert "from here on the events repeat for ever" in text
        states = list(trace.states())
        assert states[found.begins - 1] == states[-1]


def test_the_block_counts_of_vllm_take_precedence_over_the_references() -> None:
    trace = hang("impossible_fit_waits")
    state = restored(list(trace.states())[-1])
    asked = [BlockRefusal("E", "r0", 9, 2)]
    found = waits(trace.cluster, state, HangContext(refused=asked))[0]
    assert (found.lack, found.needed, found.free) == (Lack.BLOCKS, 9, 2)
    assert found.sentence == "r0 on E (waiting) needs 9 blocks, and the whole pool has 3"


TOLD = {
    "waiting_sessions_hold_on": "r0 on E (waiting, has 3 blocks) needs 1 block and 0 of 6 are free",
    "hit_without_room_waits": "the reference would go on with it (Admit(r0, ",
    "impossible_fit_waits": "r0 on E (preempted) needs 5 blocks, and the whole pool has 4",
    "write_awaited_for_ever": "its transfer has ended, yet the copy has failed and is not tried",
}


@pytest.mark.parametrize("name", TOLD)
def test_an_older_trace_of_real_vllm_explains_its_hang_too(name: str) -> None:
    """These traces were written before findings said who waits for what."""
    trace = read(FINDINGS / name / "trace.jsonl")
    assert TOLD[name] in " ".join(render(trace).split())
