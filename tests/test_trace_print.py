"""The print of a trace: the answers come first, and the cause of a break is marked."""

import importlib
from pathlib import Path

import pytest

from benchmarks.releases.stories import STORIES
from kvproof.invariants.registry import CHECKS
from kvproof.live.known.registry import KNOWN
from kvproof.model import events as vocabulary
from kvproof.model.faults.registry import FAULTS
from kvproof.model.traces.trace_reader import read
from kvproof.reports.ledger.of_trace import of_trace
from kvproof.reports.terminal import Extra, render
from kvproof.reports.trace import in_words
from kvproof.reports.trace.functions import FUNCTIONS
from kvproof.reports.trace.signs import first_sign
from kvproof.strategies.waits import DECIDES
from tests.findings import FOLDER
from tests.test_rendering import trace_of

STORY_FAULTS = [fault for story in STORIES.values() for fault in story.faults]


@pytest.mark.parametrize("fault", STORY_FAULTS)
def test_the_first_lines_answer_the_questions(fault: str) -> None:
    """What broke, in which event, why, in which function of vLLM, and how to replay it."""
    trace = trace_of(fault)
    assert trace.finding is not None
    first = " ".join(" ".join(render(trace, Extra(Path("t.jsonl"))).splitlines()[:25]).split())
    known = CHECKS[trace.finding.invariant]
    assert known.severity is not None
    assert f"BROKEN: {trace.finding.invariant} (severity: {known.severity.words})" in first
    assert known.name in first
    assert all(" ".join(reason.split()) in first for reason in trace.finding.sentences)
    assert f"Where: event {len(trace.events)}" in first
    function = FAULTS[fault].in_vllm
    assert function
    assert f"In vLLM, at fault: {function}" in first
    assert "Replay it: kvproof replay t.jsonl --machine model" in first
    assert f"Fault {fault}: {FAULTS[fault].mistake}." in first
    assert f"Event {len(trace.events)} in words: " in first


def said(text: str) -> str:
    """The text in one line."""
    return " ".join(text.split())


def test_a_cause_before_the_last_event_is_marked() -> None:
    """The lease ends at event 6, and the wrong tokens are read at event 11."""
    trace = read(FOLDER / "lease_ends_under_writer" / "trace.jsonl")
    found = first_sign(trace)
    assert found is not None
    assert (found.event, found.finding.invariant) == (6, "nothing_reused_under_transfer")
    text = said(render(trace))
    wrong = "Went wrong: event 6, LeaseExpire(r0): a transfer still reads blocks [1, 2]"
    assert text.count(wrong) == 2  # in the first and in the last lines
    mark = "it went wrong here, nothing_reused_under_transfer: a transfer still reads blocks [1, 2]"
    assert text.index("6 LeaseExpire(r0)") < text.index(mark) < text.index("8 Schedule(P)")
    assert of_trace(trace).steps[5].found == ("nothing_reused_under_transfer",)
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
    for names in (*FUNCTIONS.values(), made_in, DECIDES.values()):
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
