"""vLLM watched while it is driven: the watcher says nothing that the driver does not say."""

from collections import Counter
from typing import Any

import pytest
from msgspec import structs

from kvproof.gate.difference import judged
from kvproof.model.config import Cluster, Group
from kvproof.model.errors import AdapterDrift
from kvproof.model.events import Schedule, Submit
from kvproof.model.presets import CLUSTERS
from kvproof.watch.shown import JUDGED, Views
from tests import mistakes, mistakes_of_drafts, mistakes_of_steps

pytestmark = pytest.mark.live

PRESETS: dict[str, tuple[str, ...]] = {
    "full": (
        *("pool_adds_up", "references_are_exact", "no_block_free_and_held", "hash_map_is_sound"),
        *("null_block_is_nobody", "predicted_is_taken", "table_fits_its_tokens"),
        *("cached_block_holds_its_key", "cached_key_can_be_hit", "counter_counts_only_cached"),
        *("every_request_in_one_queue", "truncated_at_most_once", "worker_forgets_who_left"),
        *("hit_holds_in_every_group", "hit_is_the_longest", "repeated_prompt_hits"),
        *("request_reads_its_own_prefix", "all_blocks_return", "idle_engine_keeps_nothing"),
        *("step_keeps_its_limits", "admitted_request_was_waiting", "hit_blocks_are_cached"),
        *("only_a_step_takes_blocks", "entry_is_lost_with_its_block"),
        "computed_tokens_are_those_scheduled",
    ),
    "hybrid-evicting": (
        *("no_more_is_held_than_is_read", "new_blocks_are_zeroed", "zeroed_blocks_are_new"),
    ),
    "resetting": ("reset_is_whole",),
    "async-drafts-window": ("settled_frees",),
    "hybrid-async-drafts": ("placeholders_are_samples_in_flight",),
    "sessions-limited": ("every_request_in_one_queue",),
    "store-failing-async": ("no_token_of_a_failed_load",),
    "pd-embeds": ("offer_has_tokens", "nothing_reused_under_transfer"),
    "turns-window": ("offer_has_tokens",),
    "wide-window-state": ("hit_is_the_longest",),
    "priority": ("priority_is_kept",),
    "watermark": ("watermark_is_kept",),
    "partial": ("state_read_is_state_at_computed", "writer_is_alone"),
    "events-hybrid": ("events_carry_their_tokens", "events_replay_to_the_cache"),
}
"""Presets, and checks that have something to judge on them."""


class Watched:
    """Runs of real vLLM under an observer, of class `kind` if it is another. `found` counts the
    findings, `asked` what was asked."""

    def __init__(self, kind: Any = None) -> None:
        self.kind = kind
        self.found: Counter[str] = Counter()
        self.times_judged: Counter[str] = Counter()
        self.judges: list[Any] = []

    def machine(self, cluster: Cluster) -> Any:
        from kvproof.live.machine import LiveMachine
        from kvproof.watch.judge import Judge
        from kvproof.watch.observer import Observer

        machine = LiveMachine(cluster)
        for name, node in machine.nodes.items():
            judge = Judge(lambda finding, _: self.found.update([finding.invariant]))
            (self.kind or Observer)(node.scheduler, judge, name)
            self.judges.append(judge)
        return machine

    def run(self, cluster: Cluster, seed: int = 0) -> set[str]:
        """Run random episodes. Returns the checks that the driver's own state breaks."""
        judgement = judged.sampled(cluster, self.machine, seed, 8, 40)
        for judge in self.judges:
            assert not judge.why_off, judge.why_off
            self.times_judged.update(judge.times_judged)
        return {each.signature.check for each in judgement.breaks}


@pytest.mark.parametrize("name", PRESETS)
def test_a_watcher_finds_nothing_but_what_the_driver_finds(name: str) -> None:
    watched = Watched()
    there = watched.run(CLUSTERS[name])
    assert set(watched.found) <= there
    assert [each for each in PRESETS[name] if not watched.times_judged[each]] == []


def test_every_view_of_a_watcher_has_something_to_show() -> None:
    """No preset has an engine that dies, or stands still: findings on real engines show that. A
    check that needs no other facts is asked wherever its view has something to show."""
    judged_here = {name for names in PRESETS.values() for name in names}
    assert judged_here <= set(JUDGED)
    seen = {view for view in Views if judged_here & {check.id for check in view.value.checks}}
    assert set(Views) - seen == {Views.DEATH, Views.PROGRESS}


ALL = mistakes.MISTAKES | mistakes_of_drafts.MISTAKES | mistakes_of_steps.MISTAKES
SEEN = {
    "window_freed_in_flight": "async",
    "late_output_takes_placeholder": "async-preempting",
    "null_blocks_registered": "hybrid",
    "untouched_hits": "full",
    "evicted_key_stays": "full",
    "prediction_forgets_hits": "full",
    "no_align_split": "hybrid-chunked",
}


def more_than_the_batch(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler.schedule

    def schedule(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.max_num_running_reqs = self.max_num_active_reqs = 10
        return original(self, *args, **kwargs)

    patch.setattr(Scheduler, "schedule", schedule)


def output_takes_a_block(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler.update_from_output

    def update_from_output(self: Any, *args: Any, **kwargs: Any) -> Any:
        pool = self.kv_cache_manager.block_pool
        pool.touch([pool.blocks[1]])
        return original(self, *args, **kwargs)

    patch.setattr(Scheduler, "update_from_output", update_from_output)


def entries_go_with_their_requests(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.block_pool import BlockPool

    original = BlockPool.free_blocks

    def free_blocks(self: Any, ordered_blocks: Any) -> None:
        blocks = list(ordered_blocks)
        original(self, blocks)
        for block in blocks:
            if block.ref_cnt == 0:
                self._maybe_evict_cached_block(block)

    patch.setattr(BlockPool, "free_blocks", free_blocks)


def hit_in_another_order(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    original = KVCacheManager.get_computed_blocks

    def get_computed_blocks(self: Any, request: Any) -> Any:
        blocks, *others = original(self, request)
        for group in blocks.blocks:
            if isinstance(group, list):
                group.reverse()
        return (blocks, *others)

    patch.setattr(KVCacheManager, "get_computed_blocks", get_computed_blocks)


AGAINST_GUARDS = {
    "computed_tokens_are_those_scheduled": (
        mistakes_of_steps.worker_is_told_one_too_many,
        "full",
    ),
    "step_keeps_its_limits": (more_than_the_batch, "resetting-limited"),
    "only_a_step_takes_blocks": (output_takes_a_block, "full"),
    "entry_is_lost_with_its_block": (entries_go_with_their_requests, "full"),
    "hit_blocks_are_cached": (hit_in_another_order, "full"),
}


@pytest.mark.parametrize("guard", AGAINST_GUARDS)
def test_a_step_that_the_spec_forbids_is_seen(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, preset = AGAINST_GUARDS[guard]
    plant(monkeypatch)
    watched = Watched()
    for seed in range(4):
        watched.run(CLUSTERS[preset], seed)
        if guard in watched.found:
            break
    assert guard in watched.found, watched.found


@pytest.mark.parametrize("name", SEEN)
def test_a_mistake_in_vllm_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ALL[name].patch(monkeypatch)
    watched = Watched()
    for seed in range(16):
        watched.run(CLUSTERS[SEEN[name]], seed)
        if watched.found:
            break
    assert ALL[name].finds in watched.found, watched.found


@pytest.mark.parametrize("mistake", [ZeroDivisionError, AdapterDrift])
def test_a_mistake_of_kvproof_does_not_reach_vllm(
    mistake: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvproof.watch.noted import Noted

    def refresh_all(_self: Noted) -> None:
        raise mistake("a mistake")

    monkeypatch.setattr(Noted, "refresh_all", refresh_all)
    watched = Watched()
    machine = watched.machine(CLUSTERS["full"])
    machine.take(Submit("E", "r0"))
    step = machine.take(Schedule("E"))
    assert not step.after.engine("E").dead
    [why] = watched.judges[0].why_off
    assert why.startswith(f"{mistake.__name__}: {mistake('a mistake')}, in test_watch.py, line ")
    assert why.endswith("; it watches this engine no more")


def test_what_a_request_has_written_before_its_preemption_is_noted() -> None:
    """It is written up when its blocks change, and a preemption sets its computed tokens to 0."""
    from kvproof.watch.calls import Calls, Noting
    from kvproof.watch.observer import Observer

    noted: list[tuple[int, int]] = []

    class Seen(Calls):
        def preempts(self, request: Any, *args: Any, **kwargs: Any) -> Noting:
            computed = request.num_computed_tokens
            hook = super().preempts(request, *args, **kwargs)
            next(hook)
            noted.append((self.noted.requests[request.request_id].written, computed))
            yield None

    class Observed(Observer):
        CALLS = Seen

    preset = CLUSTERS["priority"]
    engine = structs.replace(preset.engines[0], groups=(Group("full", 8),), num_blocks=5)
    jobs = [structs.replace(job, max_tokens=24) for job in preset.jobs]
    Watched(Observed).run(structs.replace(preset, engines=(engine,)).carrying(*jobs))
    assert noted
    assert [each for each in noted if each[0] < each[1]] == []


def test_an_engine_that_is_changed_by_hand_is_not_judged_any_further() -> None:
    watched = Watched()
    machine = watched.machine(CLUSTERS["full"])
    machine.nodes["E"].scheduler.kv_cache_manager.block_pool.get_new_blocks(1)
    machine.take(Submit("E", "r0"))
    machine.take(Schedule("E"))
    [judge] = watched.judges
    assert judge.by_hand == "get_new_blocks was called outside of an event"
    assert not watched.found
    assert not judge.times_judged
