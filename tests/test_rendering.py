"""What a person reads of a trace: golden transcripts, the first lines, and who waits for what."""

import importlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kvproof.invariants.registry import INVARIANTS
from kvproof.live.known.registry import KNOWN
from kvproof.model import events as vocabulary
from kvproof.model.faults.registry import FAULTS
from kvproof.model.step import BlockRefusal
from kvproof.model.traces.restored import restored
from kvproof.model.traces.trace_reader import read
from kvproof.reports.ledger.of_trace import of_trace
from kvproof.reports.terminal import Extra, shell_word, show
from kvproof.reports.trace import in_words
from kvproof.reports.trace.about import first_sign
from kvproof.reports.trace.functions import FUNCTIONS
from kvproof.reports.trace.hang import hang_of
from kvproof.strategies.waits import HangContext, waits
from tests.findings import FOLDER
from tests.planted import trace_of
from tests.printed import printed

Golden = Callable[[str, str], None]


@pytest.mark.parametrize(
    "fault", ["front_trim", "decode_loads_whole_prompt", "align_split_during_load"]
)
def test_transcript(fault: str, golden: Golden) -> None:
    golden(
        f"{fault}.txt", printed(show, trace_of(fault), Extra(Path("kvproof-traces/example.jsonl")))
    )


LIVE = Path(__file__).parent / "testdata" / "vllm_0.32.0_mamba_counter.jsonl"
"""Taken from real vLLM 0.32.0, where the cached-block counter counts null blocks (vllm#42547)."""


def test_a_trace_of_real_vllm_is_shown_without_vllm(golden: Golden) -> None:
    golden("vllm_0.32.0_mamba_counter.txt", printed(show, read(LIVE)))


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
    assert "\x1b" not in printed(show, trace_of("front_trim"))


# The answers come first


def in_one_line(text: str) -> str:
    """The text in one line."""
    return " ".join(text.split())


def test_a_cause_before_the_last_event_is_marked() -> None:
    """The lease ends at event 6, and the wrong tokens are read at event 11."""
    trace = read(FOLDER / "lease_ends_under_writer" / "trace.jsonl")
    found = first_sign(trace)
    assert found is not None
    assert (found.event, found.finding.invariant) == (6, "nothing_reused_under_transfer")
    text = in_one_line(printed(show, trace))
    wrong = "Went wrong: event 6, LeaseExpire(r0): a transfer still reads blocks [1, 2]"
    assert text.count(wrong) == 2  # in the first and in the last lines
    mark = "it went wrong here, nothing_reused_under_transfer: a transfer still reads blocks [1, 2]"
    assert text.index("6 LeaseExpire(r0)") < text.index(mark) < text.index("8 Schedule(P)")
    assert of_trace(trace)["steps"][5]["found"] == ("nothing_reused_under_transfer",)
    assert first_sign(trace_of("front_trim")) is None


def test_each_event_has_a_function_and_words() -> None:
    names = {kind.__name__ for kind in (*_kinds(vocabulary.Event), *_kinds(vocabulary.Choice))}
    assert names == {*FUNCTIONS} == {*in_words.WORDS}


def _kinds(union: object) -> tuple[type, ...]:
    return union.__args__  # type: ignore[attr-defined,no-any-return]


@pytest.mark.live
def test_vllm_has_these_functions() -> None:
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.scheduler import Scheduler

    owners = {"Scheduler": Scheduler, "KVCacheManager": KVCacheManager}
    for module in MODULES:
        owners |= vars(importlib.import_module(f"vllm.{module}"))
    made_in = [each.in_vllm for each in (*FAULTS.values(), *KNOWN.values()) if each.in_vllm]
    for names in (*FUNCTIONS.values(), made_in):
        for name in names:
            owner, method = name.split(".")
            assert hasattr(owners[owner], method), name


MODULES = (
    *("v1.core.kv_cache_coordinator", "v1.core.single_type_kv_cache_manager"),
    *("v1.core.block_pool", "v1.core.sched.async_scheduler", "v1.request"),
    *(
        f"distributed.kv_transfer.kv_connector.v1.nixl.{name}"
        for name in (
            *("base_scheduler", "base_worker", "pull_scheduler", "pull_worker"),
            *("push_scheduler", "push_worker"),
        )
    ),
)
"""Where the classes of these functions are."""


# Hangs


HANG = INVARIANTS["every_request_can_finish"]

LACKS = {
    "align_split_during_load": ("D", "r0", "permission"),
    "deferred_requests_take_places": ("D", "r1", "place"),
    "failed_load_holds_the_queue": ("D", "r0", "blocks"),
    "failed_load_waits_on": ("D", "r0", "report"),
    "held_is_loaded_again": ("P", "r1", "report"),
    "hit_covers_whole_prompt": ("E", "r0", "tokens"),
    "hit_without_room_waits": ("E", "r0", "permission"),
    "impossible_fit_waits": ("E", "r0", "blocks"),
    "late_end_loses_session": ("E", "r1", "queue"),
    "load_keeps_room_for_drafts": ("D", "r0", "blocks"),
    "loads_take_the_last_blocks": ("D", "r0", "blocks"),
    "one_token_prompt_truncated": ("P", "r0", "permission"),
    "poisoned_step_counts": ("E", "r1", "tokens"),
    "read_is_not_reported": ("P", "r0", "report"),
    "shared_prefix_boundary_inside_a_block": ("E", "r1", "permission"),
    "waiting_sessions_hold_on": ("E", "r0", "blocks"),
    "wide_block_never_crossed": ("E", "r0", "tokens"),
    "write_awaited_for_ever": ("D", "r0", "report"),
}
"""For each fault that stops progress: who waits first, and what it lacks."""


def test_every_fault_that_stops_progress_is_in_the_table() -> None:
    assert {name for name, fault in FAULTS.items() if HANG.id in fault.breaks} == {*LACKS}


@pytest.mark.parametrize("fault", LACKS)
def test_a_hang_names_the_waiting_requests_and_what_they_lack(fault: str) -> None:
    trace = trace_of(fault, HANG.id)
    found = hang_of(trace)
    assert found is not None
    first = found.waits[0]
    assert (first.engine, first.request, first.lack) == LACKS[fault]
    assert trace.finding is not None
    assert trace.finding.sentences[0] == first.sentence
    assert (trace.finding.about.engine, trace.finding.about.request) == LACKS[fault][:2]
    text = " ".join(printed(show, trace, Extra(Path("t.jsonl"))).split())
    if found.begins is not None:
        assert "from here on the events repeat for ever" in text
        states = list(trace.states())
        assert states[found.begins - 1] == states[-1]


def test_the_block_counts_of_vllm_take_precedence_over_the_references() -> None:
    trace = trace_of("impossible_fit_waits", HANG.id)
    state = restored(list(trace.states())[-1])
    asked = [BlockRefusal("E", "r0", 9, 2)]
    found = waits(trace.cluster, state, HangContext(refused=asked))[0]
    assert (found.lack, found.needed, found.free) == ("blocks", 9, 2)
    assert found.sentence == "r0 on E (waiting) needs 9 blocks, and the whole pool has 3"
