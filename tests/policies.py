"""Changes of live vLLM that are harmless: each chooses otherwise where vLLM is free to choose, and
does nothing else. What must stay green under them, and be reported as a policy that differs."""

from typing import Any, NamedTuple

import pytest

from kvproof.model.config import Cluster, EngineConfig, Group
from tests.in_vllm import COORDINATOR, POOL, SCHEDULER, Change, around, both, instead


def _roomy(name: str, **options: Any) -> Cluster:
    engine = EngineConfig("E", (Group("full", 2),), 60, chunk_tokens=4, **options)
    return Cluster(name, (engine,), aborts=True)


ROOMY = {c.name: c for c in (_roomy("roomy"), _roomy("roomy-async", steps_in_flight=2))}
"""Where no block is given out before it has been cached, as it may be where caching is put off."""


class Policy(NamedTuple):
    """A change of vLLM's classes, presets in which it makes a difference, and what differs."""

    change: Change
    clusters: tuple[str, ...]
    differs: str

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Put it into vLLM, after the contract is checked: what is put there in the place of a
        method need not name its parameters."""
        from kvproof.live.contract_check import check

        check()
        self.change(patch)


def _requeue(queue: Any, blocks: list[Any]) -> None:
    for block in blocks:
        queue.remove(block)
    queue.append_n(blocks)


def free_queue_reversed(right: Any, pool: Any, count: int) -> Any:
    """The block that was freed last is given out first, cached or not."""
    queue = pool.free_block_queue
    _requeue(queue, queue.get_all_free_blocks()[::-1])
    return right(pool, count)


def freed_head_first(right: Any, pool: Any, blocks: Any) -> Any:
    """The first blocks of a request are freed, and evicted, before its last."""
    return right(pool, list(blocks)[::-1])


def another_victim(right: Any, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
    """Who runs is served in turns, so that another one is last, and is preempted."""
    if len(scheduler.running) > 1:
        scheduler.running.append(scheduler.running.pop(0))
    return right(scheduler, *args, **kwargs)


def _chunks_of(size: int) -> Change:
    def chunked(right: Any, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        scheduler.scheduler_config.long_prefill_token_threshold = size
        return right(scheduler, *args, **kwargs)

    return around(f"{SCHEDULER}.schedule", chunked)


def _late(coordinator: Any) -> dict[str, tuple[Any, Any, int]]:
    """What is to be cached, by request: the function that does it, and its arguments."""
    late: dict[str, Any] = vars(coordinator).setdefault("cached_late", {})
    return late


def _at_last(coordinator: Any, name: str) -> None:
    if name in _late(coordinator):
        cache, request, tokens = _late(coordinator).pop(name)
        cache(coordinator, request, tokens)


def _caches_later(right: Any, coordinator: Any, request: Any, tokens: int) -> None:
    _at_last(coordinator, request.request_id)
    _late(coordinator)[request.request_id] = right, request, tokens


def _before_it_ends(right: Any, coordinator: Any, name: str, *args: Any) -> Any:
    _at_last(coordinator, name)
    return right(coordinator, name, *args)


def _before_a_step(right: Any, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
    coordinator = scheduler.kv_cache_manager.coordinator
    for name in list(_late(coordinator)):
        _at_last(coordinator, name)
    return right(scheduler, *args, **kwargs)


cached_a_step_later = both(
    around(f"{COORDINATOR}:KVCacheCoordinator.cache_blocks", _caches_later),
    around(f"{COORDINATOR}:KVCacheCoordinator.pop_blocks_for_free", _before_it_ends),
    around(f"{COORDINATOR}:KVCacheCoordinator.free", _before_it_ends),
    around(f"{SCHEDULER}.schedule", _before_a_step),
)
"""A block that a step fills is cached as the next step begins, or when its request ends."""

last_come_first_served = instead(
    "vllm.v1.core.sched.request_queue:FCFSRequestQueue.add_request",
    lambda self, request: self.appendleft(request),
)
"""Who came last is admitted first."""

POLICIES = {
    "free_queue_reversed": Policy(
        around(f"{POOL}.get_new_blocks", free_queue_reversed),
        ("full", "hybrid", "pd", "pd-window", "sessions"),
        "blocks",
    ),
    "freed_head_first": Policy(
        around(f"{POOL}.free_blocks", freed_head_first), ("full", "window", "async"), "freed"
    ),
    "another_victim": Policy(
        around(f"{SCHEDULER}.schedule", another_victim),
        ("full", "async-preempting", "hybrid", "pd-async"),
        "victim",
    ),
    "chunks_of_three": Policy(_chunks_of(3), ("full", "window", "pd-full"), "chunk"),
    "cached_a_step_later": Policy(cached_a_step_later, ("roomy", "roomy-async"), "cached"),
    "last_come_first_served": Policy(
        last_come_first_served, ("full", "hybrid", "pd-full"), "order"
    ),
}
