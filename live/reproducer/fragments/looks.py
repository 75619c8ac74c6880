"""What a scheduler shows."""

from collections import Counter
from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler


def table(scheduler: Scheduler, name: str, group: int) -> list[int]:
    """The block ids of a request in one cache group; 0 is the null block."""
    return list(scheduler.kv_cache_manager.get_block_ids(name)[group])


def num_cached_blocks(scheduler: Scheduler, name: str, group: int) -> int:
    """The blocks of a request that its manager counts as cached."""
    manager = scheduler.kv_cache_manager.coordinator.single_type_managers[group]
    return int(manager.num_cached_block.get(name, 0))


def num_free_blocks(scheduler: Scheduler) -> int:
    return int(scheduler.kv_cache_manager.block_pool.get_num_free_blocks())


def ref_count(scheduler: Scheduler, block: int) -> int:
    return int(scheduler.kv_cache_manager.block_pool.blocks[block].ref_cnt)


def num_cached(scheduler: Scheduler) -> int:
    """The blocks of the pool that have a hash."""
    blocks = scheduler.kv_cache_manager.block_pool.blocks
    return sum(block.block_hash is not None for block in blocks)


def is_cached(scheduler: Scheduler, block: int) -> bool:
    pool = scheduler.kv_cache_manager.block_pool
    return bool(pool.blocks[block].block_hash is not None)


def free_blocks(scheduler: Scheduler) -> set[int]:
    """The blocks in the free queue. A damaged queue may be a circle."""
    free: set[int] = set()
    queue = scheduler.kv_cache_manager.block_pool.free_block_queue
    block = queue.fake_free_list_head.next_free_block
    while block and block.next_free_block and block.block_id not in free:
        free.add(block.block_id)
        block = block.next_free_block
    return free


def tables(scheduler: Scheduler) -> list[tuple[str, int]]:
    """Each block in a block table, with its request, as often as it is there."""
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    return [
        (name, block.block_id)
        for manager in managers
        for name, blocks in manager.req_to_blocks.items()
        for block in blocks
        if not block.is_null
    ]


def holders(scheduler: Scheduler, block: int) -> list[str]:
    """The requests with a block in their block tables."""
    return sorted({name for name, held in tables(scheduler) if held == block})


def deferred(scheduler: Scheduler) -> list[int]:
    """The blocks that are freed when the steps in flight have ended."""
    waiting = getattr(scheduler, "deferred_frees", ())
    return [b.block_id for _, blocks in waiting for b in blocks if not b.is_null]


def free_and_held(scheduler: Scheduler) -> list[int]:
    """The free blocks that a block table has."""
    held = {block for _, block in tables(scheduler)}
    return sorted(held & free_blocks(scheduler))


def miscounted(scheduler: Scheduler) -> list[int]:
    """The blocks whose reference count is not the number of their references."""
    held = Counter([*(b for _, b in tables(scheduler)), *deferred(scheduler)])
    blocks = scheduler.kv_cache_manager.block_pool.blocks
    return [b.block_id for b in blocks[1:] if b.ref_cnt != held[b.block_id]]


def lost_blocks(scheduler: Scheduler) -> list[int]:
    """The blocks that are neither free nor held."""
    held = {block for _, block in tables(scheduler)} | set(deferred(scheduler))
    every = range(1, len(scheduler.kv_cache_manager.block_pool.blocks))
    return sorted({*every} - held - free_blocks(scheduler))


def num_queues(scheduler: Scheduler, name: str) -> int:
    """The queues of the scheduler that have a request."""
    found = 0
    for queue in vars(scheduler).values():
        if isinstance(queue, list) or type(queue).__name__.endswith("Queue"):
            found += sum(getattr(r, "request_id", "") == name for r in queue)
    return found


def watch_allocations(scheduler: Scheduler) -> dict[str, tuple[int, int]]:
    """Notes for each request the blocks that its last allocation was predicted to take,
    and those that it took."""
    noted: dict[str, tuple[int, int]] = {}
    predictions: list[int] = []
    manager = scheduler.kv_cache_manager
    predict = manager.coordinator.get_num_blocks_to_allocate
    allocate = manager.allocate_slots

    def predicting(*args: Any, **kwargs: Any) -> int:
        result: int = predict(*args, **kwargs)
        if not kwargs.get("apply_admission_cap"):
            predictions.append(result)
        return result

    def allocating(request: Any, *args: Any, **kwargs: Any) -> Any:
        free = num_free_blocks(scheduler)
        result = allocate(request, *args, **kwargs)
        if result is not None:
            taken = free - num_free_blocks(scheduler)
            noted[request.request_id] = predictions[-1], taken
        return result

    manager.coordinator.get_num_blocks_to_allocate = predicting
    manager.allocate_slots = allocating
    return noted


def mispredicted(noted: dict[str, tuple[int, int]], name: str) -> str | None:
    """How the last allocation of a request differs from its prediction, if it does."""
    predicted, taken = noted.get(name, (0, 0))
    return None if predicted == taken else f"predicted {predicted}, took {taken}"


def listen(scheduler: Scheduler) -> list[Any]:
    """The KV events that the scheduler publishes from now on."""
    received: list[Any] = []
    publish = scheduler.kv_event_publisher.publish

    def publishing(batch: Any) -> None:
        received.extend(batch.events)
        publish(batch)

    scheduler.kv_event_publisher.publish = publishing
    return received


def take_events(scheduler: Scheduler, received: list[Any]) -> list[Any]:
    """All KV events up to now."""
    received.extend(scheduler.kv_cache_manager.take_events())
    return received


def mirrored(events: list[Any]) -> int:
    """The number of cached prefixes in the mirror of a listener."""
    mirror: set[Any] = set()
    for event in events:
        kind = type(event).__name__
        hashes = {(event.group_idx, h) for h in getattr(event, "block_hashes", ())}
        mirror = {"BlockStored": mirror | hashes, "BlockRemoved": mirror - hashes}.get(
            kind, set()
        )
    return len(mirror)


def num_prefixes(scheduler: Scheduler) -> int:
    """The number of cached prefixes."""
    pool = scheduler.kv_cache_manager.block_pool
    return len(pool.cached_block_hash_to_block)


def described(events: list[Any]) -> list[Any]:
    """The KV events without their hashes: kind, group, blocks and tokens."""
    return [
        [
            type(event).__name__,
            getattr(event, "group_idx", None),
            len(getattr(event, "block_hashes", ())),
            list(getattr(event, "token_ids", ())),
        ]
        for event in events
    ]
