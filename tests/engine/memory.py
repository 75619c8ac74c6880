"""What a test does by hand to the memory of a real engine. The process of the engine calls this."""

from typing import Any


def _scheduler(llm: Any) -> Any:
    return llm.llm_engine.engine_core.engine_core.scheduler


def _change(scheduler: Any, block: int, group: int) -> None:
    """Change one number of the last layer of a group."""
    config = scheduler.vllm_config.compilation_config
    name = scheduler.kv_cache_config.kv_cache_groups[group].layer_names[-1]
    cache = config.static_forward_context[name].kv_cache
    cache = cache[-1] if isinstance(cache, tuple) else cache
    page = cache[block * (cache.shape[0] // scheduler.kv_cache_config.num_blocks)]
    page[(-1,) * page.ndim] += 1


def change(llm: Any, group: int, *, at: int = 0) -> int:
    """Change the bytes of a cached block that nobody holds: the one that is evicted after `at`
    others. Returns its number."""
    from vllm.v1.core.kv_cache_utils import get_group_id

    scheduler = _scheduler(llm)
    free = scheduler.kv_cache_manager.block_pool.free_block_queue.get_all_free_blocks()
    hashed = ((block, block.block_hash) for block in free)
    cached = [block for block, key in hashed if key is not None and get_group_id(key) == group]
    number = int(cached[at].block_id)
    _change(scheduler, number, group)
    return number


def change_null(llm: Any) -> None:
    """Change the bytes of the null block."""
    _change(_scheduler(llm), 0, 0)


def held(llm: Any) -> int:
    """How many requests the scheduler has, with those that wait for their transfer to end."""
    return len(_scheduler(llm).requests)


def record(_: Any) -> list[str]:
    """Write a record of each engine. Returns a line about each file."""
    from kvproof.watch import switch

    return switch.dump()
