"""vLLM watched while it is driven: the watcher says nothing that the driver does not say."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("vllm")

from msgspec import structs

from kvproof.gate.difference import judged
from kvproof.gate.difference.workload import Episodes
from kvproof.model.config import Cluster, Group
from kvproof.model.errors import AdapterDrift
from kvproof.model.events import Complete, Schedule, Submit
from kvproof.model.presets import CLUSTERS
from kvproof.watch.calls import Calls, Noting
from kvproof.watch.notes import EngineNotes
from kvproof.watch.observer import Observer
from kvproof.watch.shown import JUDGED, Views
from tests.in_vllm import MANAGER, POOL, SCHEDULER, Mistake, around
from tests.mistakes import MISTAKES
from tests.watching import Observed

pytestmark = pytest.mark.live

PRESETS = (
    *("full", "hybrid-evicting", "resetting", "async-drafts-window", "hybrid-async-drafts"),
    *("sessions-limited", "store-failing-async", "pd-embeds", "turns-window"),
    *("wide-window-state", "priority", "watermark", "partial", "events-hybrid"),
)
"""Presets that together let each check of a watcher judge something."""


class Watched:
    """Runs of real vLLM under an observer, of class `kind` if it is another. `found` counts the
    findings, `times_judged` what was asked."""

    def __init__(self, kind: Any = None) -> None:
        self.kind = kind
        self.found: Counter[str] = Counter()
        self.times_judged: Counter[str] = Counter()
        self.judges: list[Any] = []

    def machine(self, cluster: Cluster) -> Any:
        observed = Observed(
            cluster, self.kind, lambda found, _: self.found.update([found.invariant])
        )
        self.judges += observed.judges.values()
        return observed.machine

    def run(self, cluster: Cluster, seed: int = 0) -> set[str]:
        """Run random episodes. Returns the checks that the driver's own state breaks."""
        judgement = judged.driven(Episodes("", cluster, seed, 8, 40), self.machine)
        for judge in self.judges:
            assert not judge.why_off, judge.why_off
            self.times_judged.update(judge.times_judged)
        return {each.signature.check for each in judgement.breaks}


def test_a_watcher_finds_nothing_but_what_the_driver_finds_and_each_check_judges() -> None:
    """No preset has an engine that dies: findings on real engines show that."""
    judged_here: Counter[str] = Counter()
    for name in PRESETS:
        watched = Watched()
        there = watched.run(CLUSTERS[name])
        assert set(watched.found) <= there, name
        judged_here += watched.times_judged
    assert set(JUDGED) - set(judged_here) == {check.id for check in Views.DEATH.checks}


def test_a_window_that_a_longer_prompt_hit_without_computing_it_is_owed_to_nobody() -> None:
    """r2 hits the end of the window of r0, whose first block r1 has taken. r3 would need that."""
    window = CLUSTERS["window"]
    prompts = ("abcdefgh", "uv", "abcdefghi", "abXY")
    cluster = structs.replace(
        window,
        engines=(structs.replace(window.engines[0], num_blocks=11, chunk_tokens=4),),
        jobs=tuple(
            structs.replace(window.jobs[0], name=f"r{number}", prompt=prompt, max_tokens=1)
            for number, prompt in enumerate(prompts)
        ),
    )
    observed, hits = Observed(cluster), []
    for number, chunks in enumerate((2, 1, 1, 1)):
        observed.take(Submit("E", f"r{number}"))
        for _ in range(chunks):
            step = observed.take(Schedule("E"))
            hits += [(each.request, each.hit) for each in step.effects.admissions]
            observed.take(Complete("E"))
    assert hits == [("r0", 0), ("r1", 0), ("r2", 8), ("r3", 0)]
    assert not observed.found
    judge = observed.judges["E"]
    assert judge.times_judged["repeated_prompt_hits"]


def exceeds_the_batch(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    self.max_num_running_reqs = self.max_num_active_reqs = 10
    return right(self, *args, **kwargs)


def takes_a_block(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    pool = self.kv_cache_manager.block_pool
    pool.touch([pool.blocks[1]])
    return right(self, *args, **kwargs)


def frees_entries_with_blocks(right: Any, self: Any, ordered_blocks: Any) -> None:
    blocks = list(ordered_blocks)
    right(self, blocks)
    for block in blocks:
        if block.ref_cnt == 0:
            self._maybe_evict_cached_block(block)


def hits_in_another_order(right: Any, self: Any, request: Any) -> Any:
    blocks, *others = right(self, request)
    for group in blocks.blocks:
        if isinstance(group, list):
            group.reverse()
    return (blocks, *others)


PLANTED = {
    "window_freed_in_flight": "async",
    "late_output_takes_placeholder": "async-preempting",
    "null_blocks_registered": "hybrid",
    "untouched_hits": "full",
    "evicted_key_stays": "full",
    "prediction_forgets_hits": "full",
    "no_align_split": "hybrid-chunked",
}
SEEN = [
    *(MISTAKES[name]._replace(shown_by=preset) for name, preset in PLANTED.items()),
    MISTAKES["worker_is_told_one_too_many"]._replace(finds="computed_tokens_are_those_scheduled"),
    Mistake(
        around(f"{SCHEDULER}.schedule", exceeds_the_batch),
        *("step_keeps_its_limits", "resetting-limited"),
    ),
    Mistake(
        around(f"{SCHEDULER}.update_from_output", takes_a_block),
        *("only_a_step_takes_blocks", "full"),
    ),
    Mistake(
        around(f"{POOL}.free_blocks", frees_entries_with_blocks),
        *("entry_is_lost_with_its_block", "full"),
    ),
    Mistake(
        around(f"{MANAGER}.get_computed_blocks", hits_in_another_order),
        *("hit_blocks_are_cached", "full"),
    ),
]
"""A preset shows each."""


@pytest.mark.parametrize("mistake", SEEN, ids=[each.finds for each in SEEN])
def test_a_mistake_in_vllm_is_seen(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake.patch(monkeypatch)
    watched = Watched()
    for seed in range(16):
        watched.run(CLUSTERS[mistake.shown_by], seed)
        if mistake.finds in watched.found:
            return
    pytest.fail(f"{mistake.finds} is not found, but {watched.found}")


@pytest.mark.parametrize("mistake", [ZeroDivisionError, AdapterDrift])
def test_a_mistake_of_kvproof_does_not_reach_vllm(
    mistake: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refresh_all(_self: EngineNotes) -> None:
        raise mistake("a mistake")

    monkeypatch.setattr(EngineNotes, "refresh_all", refresh_all)
    observed = Observed(CLUSTERS["full"])
    step = observed.take(Submit("E", "r0"), Schedule("E"))
    assert not step.after.engine("E").dead
    [why] = observed.judges["E"].why_off
    assert why.startswith(f"{mistake.__name__}: {mistake('a mistake')}, in test_watch.py, line ")
    assert why.endswith("; it watches this engine no more")


def test_what_a_request_has_written_before_its_preemption_is_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is written up when its blocks change, and a preemption sets its computed tokens to 0."""
    noted: list[tuple[int, int]] = []

    preempts = Calls.preempts

    def seen(calls: Calls, request: Any, *args: Any, **kwargs: Any) -> Noting:
        computed = request.num_computed_tokens
        hook = preempts(calls, request, *args, **kwargs)
        next(hook)
        noted.append((calls.notes.requests[request.request_id].written, computed))
        yield None

    monkeypatch.setattr(Calls, "preempts", seen)
    preset = CLUSTERS["priority"]
    engine = structs.replace(preset.engines[0], groups=(Group("full", 8),), num_blocks=5)
    jobs = [structs.replace(job, max_tokens=24) for job in preset.jobs]
    Watched(Observer).run(structs.replace(preset, engines=(engine,)).carrying(*jobs))
    assert noted
    assert [each for each in noted if each[0] < each[1]] == []


def marked_as_running(scheduler: Any) -> None:
    scheduler.running.append(scheduler.waiting.pop_request())


def with_computed_tokens(scheduler: Any) -> None:
    for request in scheduler.requests.values():
        request.num_computed_tokens = 4


def without_a_free_block(scheduler: Any) -> None:
    scheduler.kv_cache_manager.block_pool.free_block_queue.popleft()


def with_another_method(scheduler: Any) -> None:
    manager = scheduler.kv_cache_manager
    manager.allocate_slots = mock.Mock(return_value=None)


def with_a_method_called(scheduler: Any) -> None:
    scheduler.kv_cache_manager.block_pool.get_new_blocks(1)


def with_an_exception(scheduler: Any) -> None:
    failing = mock.Mock(side_effect=ZeroDivisionError)
    with (
        mock.patch.object(scheduler.kv_cache_manager, "new_step_starts", failing),
        pytest.raises(ZeroDivisionError),
    ):
        scheduler.schedule()


def by_events_alone(_scheduler: Any) -> None:
    """Nothing is done: this one is judged."""


BY_HAND = {
    by_events_alone: "",
    marked_as_running: "the running requests changed between two events",
    with_computed_tokens: "the num_computed_tokens of a request changed between two events",
    without_a_free_block: "the number of free blocks changed between two events",
    with_another_method: "allocate_slots was replaced",
    with_a_method_called: "get_new_blocks was called outside of an event",
    with_an_exception: "schedule raised ZeroDivisionError",
}


def by_hand(build: Callable[[Any], None], *, tested: bool) -> Observed:
    """An engine to which something is done between two events."""
    observed = Observed(CLUSTERS["full"], tested=tested)
    observed.take(Submit("E", "r0"))
    build(observed.machine.nodes["E"].scheduler)
    with suppress(AdapterDrift):  # the driver cannot follow each of these states
        observed.take(Schedule("E"))
    return observed


@pytest.mark.parametrize("build", BY_HAND, ids=lambda build: build.__name__)
def test_a_state_that_is_built_by_hand_is_not_judged(build: Callable[[Any], None]) -> None:
    """A test may build a state that no event leads to."""
    observed = by_hand(build, tested=True)
    judge = observed.judges["E"]
    assert judge.by_hand == BY_HAND[build]
    assert not judge.why_off
    assert not observed.found
    assert bool(judge.times_judged["pool_adds_up"]) == (build is by_events_alone)


def test_an_exception_in_a_server_is_a_finding() -> None:
    observed = by_hand(with_an_exception, tested=False)
    assert set(observed.found) == {"engine_survives"}
    assert observed.judges["E"].by_hand == "schedule raised ZeroDivisionError"
