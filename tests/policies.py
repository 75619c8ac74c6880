"""Changes of live vLLM that are harmless: each chooses otherwise where vLLM is free to choose, and
does nothing else. What must stay green under them, and be reported as a policy that differs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from kvproof.model.config import Cluster, EngineConfig, Group

Patch = Callable[[pytest.MonkeyPatch], None]


def _roomy(name: str, **options: Any) -> Cluster:
    engine = EngineConfig("E", (Group("full", 2),), 60, chunk_tokens=4, **options)
    return Cluster(name, (engine,), aborts=True)


ROOMY = {c.name: c for c in (_roomy("roomy"), _roomy("roomy-async", steps_in_flight=2))}
"""Where no block is given out before it has been cached, as it may be where caching is put off."""


class Policy(NamedTuple):
    """A change of vLLM's classes, presets in which it makes a difference, and what differs."""

    change: Patch
    clusters: tuple[str, ...]
    differs: str

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Put it into vLLM, after the contract is checked: what is put there in the place of a
        method need not name its parameters."""
        from kvproof.live.contract_check import check

        check()
        self.change(patch)


def _pool() -> Any:
    from vllm.v1.core.block_pool import BlockPool

    return BlockPool


def _scheduler() -> Any:
    from vllm.v1.core.sched.scheduler import Scheduler

    return Scheduler


def _before(patch: pytest.MonkeyPatch, owner: Any, name: str, act: Callable[..., None]) -> None:
    """Have something done before each call of a method."""
    original = getattr(owner, name)

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        act(self, *args, **kwargs)
        return original(self, *args, **kwargs)

    patch.setattr(owner, name, called)


def _requeue(queue: Any, blocks: list[Any]) -> None:
    for block in blocks:
        queue.remove(block)
    queue.append_n(blocks)


def free_queue_reversed(patch: pytest.MonkeyPatch) -> None:
    """The block that was freed last is given out first, cached or not."""

    def act(pool: Any, _count: int) -> None:
        queue = pool.free_block_queue
        _requeue(queue, queue.get_all_free_blocks()[::-1])

    _before(patch, _pool(), "get_new_blocks", act)


def free_queue_sorted(patch: pytest.MonkeyPatch) -> None:
    """Blocks that are not cached are given out first, and of these the highest id."""

    def act(pool: Any, _count: int) -> None:
        queue = pool.free_block_queue
        _requeue(
            queue,
            sorted(
                queue.get_all_free_blocks(),
                key=lambda b: (b.block_hash is not None, -b.block_id),
            ),
        )

    _before(patch, _pool(), "get_new_blocks", act)


def another_victim(patch: pytest.MonkeyPatch) -> None:
    """Who runs is served in turns, so that another one is last, and is preempted."""

    def act(scheduler: Any, *_args: Any, **_options: Any) -> None:
        if len(scheduler.running) > 1:
            scheduler.running.append(scheduler.running.pop(0))

    _before(patch, _scheduler(), "schedule", act)


def _chunks_of(size: int) -> Patch:
    def patched(patch: pytest.MonkeyPatch) -> None:
        def act(scheduler: Any, *_args: Any, **_options: Any) -> None:
            scheduler.scheduler_config.long_prefill_token_threshold = size

        _before(patch, _scheduler(), "schedule", act)

    return patched


def cached_a_step_later(patch: pytest.MonkeyPatch) -> None:
    """A block that a step fills is cached as the next step begins, or when its request ends."""
    from vllm.v1.core.kv_cache_coordinator import KVCacheCoordinator

    cache, pop = KVCacheCoordinator.cache_blocks, KVCacheCoordinator.pop_blocks_for_free
    free = KVCacheCoordinator.free

    def late(self: Any) -> dict[str, tuple[Any, int]]:
        return self.__dict__.setdefault("cached_late", {})

    def at_last(self: Any, name: str) -> None:
        if name in late(self):
            cache(self, *late(self).pop(name))

    def later(self: Any, request: Any, tokens: int) -> None:
        at_last(self, request.request_id)
        late(self)[request.request_id] = request, tokens

    def before(original: Callable[..., Any]) -> Callable[..., Any]:
        def called(self: Any, name: str, *args: Any) -> Any:
            at_last(self, name)
            return original(self, name, *args)

        return called

    def all_at_last(scheduler: Any, *_args: Any, **_options: Any) -> None:
        coordinator = scheduler.kv_cache_manager.coordinator
        for name in list(late(coordinator)):
            at_last(coordinator, name)

    patch.setattr(KVCacheCoordinator, "cache_blocks", later)
    patch.setattr(KVCacheCoordinator, "pop_blocks_for_free", before(pop))
    patch.setattr(KVCacheCoordinator, "free", before(free))
    _before(patch, _scheduler(), "schedule", all_at_last)


def last_come_first_served(patch: pytest.MonkeyPatch) -> None:
    """Who came last is admitted first."""
    from vllm.v1.core.sched.request_queue import FCFSRequestQueue

    patch.setattr(FCFSRequestQueue, "add_request", lambda self, request: self.appendleft(request))


def freed_head_first(patch: pytest.MonkeyPatch) -> None:
    """The first blocks of a request are freed, and evicted, before its last."""
    original = _pool().free_blocks
    patch.setattr(_pool(), "free_blocks", lambda self, blocks: original(self, list(blocks)[::-1]))


POLICIES = {
    "free_queue_reversed": Policy(
        free_queue_reversed, ("full", "hybrid", "pd", "pd-window", "sessions"), "blocks"
    ),
    "free_queue_sorted": Policy(
        free_queue_sorted, ("full-evicting", "window", "hybrid-siblings", "push"), "blocks"
    ),
    "freed_head_first": Policy(freed_head_first, ("full", "window", "async"), "freed"),
    "another_victim": Policy(
        another_victim, ("full", "async-preempting", "hybrid", "pd-async"), "victim"
    ),
    "chunks_of_three": Policy(_chunks_of(3), ("full", "window", "pd-full"), "chunk"),
    "chunks_of_four": Policy(_chunks_of(4), ("hybrid", "pd", "pd-window"), "chunk"),
    "cached_a_step_later": Policy(cached_a_step_later, ("roomy", "roomy-async"), "cached"),
    "last_come_first_served": Policy(
        last_come_first_served, ("full", "hybrid", "pd-full"), "order"
    ),
}
