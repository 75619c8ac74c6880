"""Drivers of the managers of one cache group.

The managers belong to a real scheduler with a block pool. The driver sets a table with real blocks
of the pool; vLLM's functions read it.
"""

from typing import Any

from kvproof.live import build
from kvproof.model.config import EngineConfig, Group
from kvproof.model.config.group import Kind

REQUEST = "r0"


def manager(group: Group, blocks: int = 1) -> Any:
    """The manager of an engine with only this group, and with at least `blocks` free blocks."""
    scheduler = build.scheduler(EngineConfig("E", (group,), blocks + 2), "fail")
    return scheduler.kv_cache_manager.coordinator.single_type_managers[0]


def window_skipped(computed: int, window: int) -> int:
    """`SlidingWindowManager.get_num_skipped_tokens`."""
    return int(manager(Group("window", 1, window)).get_num_skipped_tokens(computed))


def state_skipped(computed: int) -> int:
    """`MambaManager.get_num_skipped_tokens`."""
    return int(manager(Group("mamba", 1)).get_num_skipped_tokens(computed))


def window_hit(window: int, block_size: int) -> int:
    """`SlidingWindowManager._contiguous_blocks_for_hit`, without EAGLE."""
    from vllm.v1.core.single_type_kv_cache_manager import SlidingWindowManager

    return int(SlidingWindowManager._contiguous_blocks_for_hit(window, block_size, False))


def mask(block: int, window: int, block_size: int, units: int) -> tuple[bool, bool]:
    """`SlidingWindowManager.reachable_block_mask` with dense retention, asked about this block
    alone and about all blocks up to it."""
    from vllm.v1.core.single_type_kv_cache_manager import SlidingWindowManager

    answers = []
    for start in (block, 0):
        found = SlidingWindowManager.reachable_block_mask(
            start_block=start,
            end_block=block + 1,
            alignment_tokens=units * block_size,
            kv_cache_spec=build.spec_of(Group("window", block_size, window)),
            use_eagle=False,
        )
        answers.append(True if found is None else bool(found[-1]))
    return answers[0], answers[1]


def retained(
    window: int,
    block: int,
    block_size: int,
    units: int,
    apart: int,
    prompt: int,
    shared_prefix_boundary: int,
) -> bool:
    """`reachable_block_mask` with sparse retention, of a window group (`window` above 0) or of a
    Mamba group. A hit unit has `units` blocks, and the retention interval is `apart` hit units."""
    from vllm.v1.core.kv_cache_coordinator import replay_boundaries

    kind = Group("window", block_size, window) if window else Group("mamba", block_size)
    unit = units * block_size
    found = type(manager(kind)).reachable_block_mask(
        start_block=block,
        end_block=block + 1,
        alignment_tokens=unit,
        kv_cache_spec=build.spec_of(kind),
        use_eagle=False,
        retention_interval=apart * unit,
        reachable_boundaries=(
            *replay_boundaries(prompt, unit, use_eagle=False),
            shared_prefix_boundary,
        ),
    )
    return True if found is None else bool(found[0])


def _predicted(group: Any, end: int, hit: list[Any], computed: int) -> int:
    local = len(hit) * group.block_size
    return int(group.get_num_blocks_to_allocate(REQUEST, end, hit, computed, local, end))


def growth(kind: Kind, end: int, block_size: int, held_blocks: int) -> int:
    """`get_num_blocks_to_allocate` of a running request that holds `held_blocks` blocks."""
    group = manager(Group(kind, block_size), held_blocks)
    group.req_to_blocks[REQUEST] = group.block_pool.get_new_blocks(held_blocks)
    group.num_cached_block[REQUEST] = 0
    if kind == "mamba":
        group._allocated_block_reqs.add(REQUEST)
    return _predicted(group, end, [], 0)


def window_admission(
    window: int,
    block_size: int,
    hit_blocks: int,
    loaded: int,
    computing: int,
    prompt: int,  # noqa: ARG001
    idle: int,
) -> int:
    """`get_num_blocks_to_allocate` of a new request in a window group; vLLM's function does not get
    the prompt length. Where `idle` is 1, the hit blocks are in the free queue; where it is 0, other
    requests hold them."""
    group = manager(Group("window", block_size, window), hit_blocks)
    hit = group.block_pool.get_new_blocks(hit_blocks)
    if idle:
        group.block_pool.free_blocks(hit)
    computed = hit_blocks * block_size + loaded
    return _predicted(group, computed + computing, hit, computed)


def state_admission(
    block_size: int, hit_blocks: int, loaded: int, computing: int, idle: int
) -> int:
    """The same in a Mamba group in align mode, whose hit is one state after null placeholders."""
    group = manager(Group("mamba", block_size), 1)
    state = group.block_pool.get_new_blocks(1)
    if idle:
        group.block_pool.free_blocks(state)
    hit = [*([group.block_pool.null_block] * (hit_blocks - 1)), *state] if hit_blocks else []
    computed = hit_blocks * block_size + loaded
    return _predicted(group, computed + computing, hit, computed)


def num_cached_blocks(block_size: int, hit_blocks: int, loaded: int) -> int:
    """The counter of cached blocks after `add_local_computed_blocks` of a Mamba group."""
    group = manager(Group("mamba", block_size), 1)
    state = group.block_pool.get_new_blocks(1)
    hit = [*([group.block_pool.null_block] * (hit_blocks - 1)), *state] if hit_blocks else []
    group.add_local_computed_blocks(REQUEST, hit, hit_blocks * block_size, loaded)
    return int(group.num_cached_block[REQUEST])
