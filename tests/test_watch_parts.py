"""What a watcher judges, by parts of an engine, and its hooks, which change nothing."""

import copy
import inspect
import pickle
import random
from collections import Counter
from collections.abc import Generator, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

pytest.importorskip("vllm")

from vllm.v1 import kv_cache_interface as kinds
from vllm.v1.kv_cache_interface import KVCacheGroupSpec

from kvproof.invariants.check import broken
from kvproof.invariants.registry import CHECKS
from kvproof.live import build
from kvproof.live.observer.hooks import Hooks
from kvproof.model.because import About
from kvproof.model.config import EngineConfig, Group
from kvproof.model.events import Admit, Complete, Preempt, Schedule, Submit
from kvproof.model.finding import Finding
from kvproof.model.presets import CLUSTERS
from kvproof.model.records.record import read, write_in
from kvproof.model.state import COUNTS, LATE, PREEMPTED, RUNNING, VOID, WAITING, Flight
from kvproof.watch import watching
from kvproof.watch.event_notes import AdmittedRequest, EventNotes
from kvproof.watch.history import KEPT, History
from kvproof.watch.parts.requests import Priority, TouchedRequests
from kvproof.watch.parts.steps import Admissions
from kvproof.watch.record import record_of
from kvproof.watch.shape import Unknown, group
from kvproof.watch.summary import Summary
from kvproof.watch.tokens import Prefix
from tests.reasons import said
from tests.recorded import Recorded
from tests.watching import Observed

pytestmark = pytest.mark.live

# Parts


def test_where_nothing_was_judged_nothing_is_known() -> None:
    summary = Summary()
    said = "UNKNOWN: nothing was watched: no engine was there to be watched"
    assert next(summary.lines()) == said
    summary.not_watched["it is of another kind"] += 1
    assert next(summary.lines()) == f"{said}; 1 engine was not watched"
    idle = Summary()
    idle.watched["engines"] = 2
    assert next(idle.lines()) == "UNKNOWN: nothing was watched: 2 engines took no step"


def test_a_mistake_of_a_part_ends_that_part_and_is_printed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def questions(_self: TouchedRequests) -> Any:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(TouchedRequests, "questions", questions)
    observed = Observed(CLUSTERS["full"])
    observed.take(Submit("E", "r0"), Schedule("E"), Complete("E"))
    [line] = observed.said
    judge = observed.judges["E"]
    assert line.startswith(
        "kvproof made a mistake (ZeroDivisionError: a mistake, in test_watch_parts.py"
    )
    assert "it judges table_fits_its_tokens, counter_counts_only_cached no more" in line
    assert line.endswith(", and vLLM goes on.")
    assert judge.times_judged["worker_forgets_who_left"]
    assert not judge.times_judged["table_fits_its_tokens"]
    assert not observed.found


KNOWN_OR_WHY = {
    "window": "",
    "full": "",
    "replayed": "its windows are not cached: the end of a hit is computed again",
    "chunks": "ChunkedLocalAttentionSpec, which reads from the last multiple",
    "encoder": "CrossAttentionSpec, whose blocks hold the tokens of an encoder",
    "answer": "RSWASpec, which reads the whole prompt and a window of the answer",
}


def specs() -> dict[str, Any]:
    """A cache group of each kind that needs a word of its own."""
    import torch

    shape: Any = {"block_size": 4, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    return {
        "window": kinds.SlidingWindowMLASpec(**shape, sliding_window=9),
        "full": kinds.HiddenStateCacheSpec(**shape),
        "replayed": kinds.SlidingWindowMLASpec(**shape, sliding_window=9, bounded_replay=True),
        "chunks": kinds.ChunkedLocalAttentionSpec(**shape, attention_chunk_size=8),
        "encoder": kinds.CrossAttentionSpec(**shape),
        "answer": kinds.RSWASpec(**shape, rswa_window=8),
    }


@pytest.mark.parametrize(("name", "why"), KNOWN_OR_WHY.items())
def test_a_cache_group_is_known_or_has_a_reason(name: str, why: str) -> None:
    scheduler = build.scheduler(EngineConfig("E", (Group("full", 4),)), "fail")
    [manager] = scheduler.kv_cache_manager.coordinator.single_type_managers
    made = KVCacheGroupSpec(["layer"], specs()[name])
    if why:
        with pytest.raises(Unknown, match=why):
            group(made, manager)
        return
    found = group(made, manager)
    assert (found.kind, found.block_size) == (name, 4)
    assert found.window == (9 if name == "window" else 0)


def test_a_finding_about_content_has_a_record(tmp_path: Path) -> None:
    """A prefix of a watched engine is no plain text."""
    recorded = Recorded(CLUSTERS["full"])
    recorded.at_random(random.Random(0), 10)
    noted = recorded.observers["E"].notes
    about = About(engine="E", prefix=Prefix("ab", 5))
    noted.history.found(Finding("cached_block_holds_its_key", said("a", "b"), about))
    made = record_of(noted, "violation")
    [found] = read(write_in(tmp_path, "record", made)).findings
    assert found.about.prefix.startswith("<7 tokens")


def test_what_other_connectors_load_is_not_read_as_if_it_were_of_nixl() -> None:
    """Their metadata has a field of the same name, and so has a mock of a test."""

    class NixlConnectorMetadata(SimpleNamespace):
        """As vLLM's, by its name."""

    load = SimpleNamespace(local_block_ids=[[1, 2]])
    noted = []
    for metadata in (
        NixlConnectorMetadata(reqs_to_recv={"r0": load}),
        SimpleNamespace(reqs_to_recv={"engine": {"r0": load}}),
        Mock(),
        None,
    ):
        history = History(from_start=True)
        history.scheduled(SimpleNamespace(num_scheduled_tokens={}, kv_connector_metadata=metadata))
        noted.append([note for note in history._notes if note[0] == "loads"])
    assert noted == [[("loads", "r0", [[1, 2]])], [], [], []]


def test_a_mistake_in_telling_the_last_events_hides_no_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any) -> None:
        raise ZeroDivisionError("planted")

    lines: list[str] = []
    monkeypatch.setattr(watching, "last_words", fails)
    watched = watching.Watching("warn", lines.append)
    watched.report(Finding("pool_adds_up", said("a", "b")), History(from_start=True))
    assert "VIOLATED pool_adds_up" in lines[0]
    assert "no events: kvproof made a mistake (ZeroDivisionError: planted)" in lines[0]


def test_steps_that_do_nothing_push_no_event_out_of_the_record() -> None:
    """An engine that waits for a transfer makes as many of them as the machine is fast."""
    history = History(from_start=True)

    def ends(what: str, *note: Any) -> None:
        history.note("tokens", {})
        if note:
            history.note(*note)
        event = EventNotes()
        event.what = what
        history.end(event)

    ends("schedule", "loads", "r0", [[1, 2]])
    ends("update_from_output")
    for _ in range(KEPT):
        ends("schedule")
        ends("update_from_output")
    ends("schedule")
    ends("update_from_output", "received", ("r0",))
    assert [each.method for each in history.events] == ["schedule", "update_from_output"] * 3
    assert [each.step for each in history.events] == [1, 2, 3, 4, 5, 6]
    assert history.events[-1].notes == [("tokens", {}), ("received", ("r0",))]
    ends("schedule")
    history.found(Finding("pool_adds_up", said("a", "b")))
    assert [note[0] for note in history.events[-1].notes] == ["tokens", "finding"]
    assert history.events[-1].step == 7


@pytest.mark.parametrize(
    ("status", "fate", "holds"),
    [
        (WAITING, COUNTS, True),
        (PREEMPTED, VOID, True),
        (RUNNING, COUNTS, False),
        (WAITING, LATE, False),
    ],
)
def test_an_admission_is_judged_by_what_the_request_was(
    status: str, fate: str, holds: bool
) -> None:
    """As it was before the step, and not what the step has made of it."""
    event = EventNotes()
    event.what, event.choices = "schedule", [Admit("r", 0, 0)]
    event.admitted = [AdmittedRequest("r", status, (Flight("r", 1, samples=True, fate=fate),))]
    seen: Any = SimpleNamespace(
        event=event,
        scheduler=None,
        slices=None,
        flights=SimpleNamespace(known=True),
        cfg=SimpleNamespace(name="E", overlaps=True),
        unjudged=Counter(),
    )
    [(step, _)] = Admissions(seen).questions()
    found = [*broken(CLUSTERS["async"], step, [CHECKS["admitted_request_was_waiting"]])]
    assert (not found) == holds
    seen.flights.known = False
    assert not list(Admissions(seen).questions())
    assert sum(seen.unjudged.values()) == 1


def test_the_summary_begins_with_a_verdict_that_hides_nothing() -> None:
    summary = Summary()
    summary.watched.update(engines=1, steps=1204)
    summary.times_judged["pool_adds_up"] = 1300
    assert next(summary.lines()) == "no violation in 1,204 steps of 1 engine"
    summary.trusted["of MyConnector"] = 4
    summary.by_hand["a test built a state"] = 1
    summary.mistakes["ZeroDivisionError"] = 1
    summary.no_bytes["they are elsewhere"] = 1
    summary.lost["EngineCore pid 7 was killed, or died; its last saved count is of step 9"] = 1
    verdict, lost, *_ = summary.lines()
    assert verdict == (
        "no violation in 1,204 steps of 1 engine; 4 loads of MyConnector were trusted, not judged; "
        "1 engine was not watched to the end; 1 engine was watched without its bytes; "
        "kvproof made a mistake on 1 engine; the numbers of 1 process are not whole"
    )
    assert lost.startswith("EngineCore pid 7 was killed")


@pytest.mark.parametrize(("second", "asked"), [(1.0, 0), (2.0, 1)])
def test_equal_requests_may_be_served_in_any_order(second: float, asked: int) -> None:
    """vLLM says nothing of two requests of equal priority that arrive at the same moment."""
    live = [
        SimpleNamespace(request_id=name, priority=0, arrival_time=at, num_computed_tokens=1)
        for name, at in (("b", 1.0), ("a", second))
    ]
    event = EventNotes()
    event.what, event.running, event.choices = "schedule", live, [Preempt("a", "c")]
    scheduler = SimpleNamespace(requests={each.request_id: each for each in live})
    slices = SimpleNamespace(queues=lambda: ())
    seen: Any = SimpleNamespace(
        event=event,
        scheduler=scheduler,
        slices=slices,
        managers=(),
        cfg=SimpleNamespace(name="E", by_priority=True),
        unjudged=Counter(),
    )
    assert len(list(Priority(seen).questions())) == asked
    assert sum(seen.unjudged.values()) == 1 - asked


# Hooks


class Pool:
    """The owner of a method with a hook."""

    def __init__(self) -> None:
        self.freed: list[int] = []

    def free(self, blocks: Iterable[int], *, last: bool = False) -> int:
        """Take blocks back."""
        self.freed += list(blocks)
        return len(self.freed) + last


class Seen:
    """Hooks around `Pool.free`, which read its iterator before the method does."""

    def __init__(self, pool: Pool) -> None:
        self.blocks: list[list[int]] = []
        self.events: list[str] = []
        self.mistakes: list[BaseException] = []
        self.by_hand: list[str] = []
        self.hooks = Hooks(self.ended, self.mistakes.append, self.by_hand.append)
        self.hooks.add(pool, "free", self.frees, event=True)

    def ended(self, what: str, _: Exception | None) -> None:
        self.events.append(what)

    def frees(self, blocks: Iterable[int], **named: Any) -> Generator[Any, Any, None]:
        read = list(blocks)
        self.blocks.append(read)
        yield (read,), named


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def seen(pool: Pool) -> Seen:
    return Seen(pool)


def test_an_iterator_is_read_once_however_it_is_passed(pool: Pool, seen: Seen) -> None:
    assert pool.free(iter([1, 2]), last=True) == 3
    assert pool.free(blocks=iter([3])) == 3
    assert pool.freed == [1, 2, 3]
    assert seen.blocks == [[1, 2], [3]]
    assert seen.events == ["free", "free"]
    assert not seen.mistakes


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pool: pickle.loads(pickle.dumps(pool))])
def test_a_copy_of_the_owner_is_not_watched(copied: Any, pool: Pool, seen: Seen) -> None:
    other = copied(pool)
    assert other.free([1]) == 1
    assert (other.freed, pool.freed) == ([1], [])
    assert not seen.blocks


def test_a_hooked_method_shows_its_parameters(pool: Pool, seen: Seen) -> None:
    """A second observer of the same engine reads the arguments of calls by them."""
    own = inspect.signature(Pool().free)
    assert inspect.signature(pool.free) == own
    seen.hooks.add_short(pool, "free", None, lambda *_: None)
    assert inspect.signature(pool.free) == own


@pytest.mark.parametrize("owner", ["of the class", "of another watched object"])
def test_an_engine_is_not_watched_any_further_after_a_method_was_replaced(
    owner: str, pool: Pool, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Pool()
    seen.hooks.add(other, "free", seen.frees, event=True)
    with monkeypatch.context() as patched:
        if owner == "of the class":
            patched.setattr(Pool, "free", lambda _, blocks: list(blocks))
        else:
            patched.setattr(other, "free", lambda blocks: list(blocks))
        assert other.free([1]) == [1]
        pool.free([2])
    assert pool.free([1]) == len(pool.freed)
    assert seen.by_hand == ["free was replaced"]
    assert not seen.blocks
