"""vLLM 0.32.0 with KV events, and a request that asks for events of its hits
(`kv_cache_report_mode` is "full"): the event names blocks that are not cached, or the engine dies.

`KVCacheManager.get_computed_blocks` passes the blocks of the hit on, and the event is made from
their number alone. Null blocks of a window or a Mamba group are named as if they were cached. Where
the hit ends inside a block that the prompt does not fill, there is no hash for it (vllm#57358,
open).
"""

from typing import Any

import pytest
from vllm.config import KVEventsConfig
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_coordinator import KVCacheCoordinator
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash
from vllm.v1.core.sched.scheduler import Scheduler

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
    make_kv_cache_config,
)

FAILS_WITH = "an event of a hit"

HASH_SIZE = 16


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event names the blocks of the hit before its first null or begun block, if any."""

    def emit(self: Any, request: Any, computed_blocks: tuple[list[Any], ...]) -> None:
        for group, blocks in enumerate(computed_blocks):
            pool: BlockPool = self.single_type_managers[group].block_pool
            size = self.kv_cache_config.kv_cache_groups[group].kv_cache_spec.block_size
            full = [b.block_hash_num_tokens == (i + 1) * size for i, b in enumerate(blocks)]
            named = full.index(False) if False in full else len(full)
            pool.emit_cached_block_events(request, named, size, group)

    monkeypatch.setattr(KVCacheCoordinator, "emit_cached_block_events", emit)


def make_scheduler(block_size: int, events: list[Any], **groups: Any) -> Scheduler:
    """Make the scheduler of an engine with these groups, whose KV events are kept."""
    config = create_vllm_config(block_size=block_size)
    config.kv_transfer_config = None
    config.kv_events_config = KVEventsConfig(enable_kv_cache_events=True, publisher="null")
    cache = make_kv_cache_config(block_size, **groups)
    cache.prefix_cache_retention_interval = config.cache_config.prefix_cache_retention_interval
    if "mamba_enabled" in groups:
        config.cache_config.mamba_cache_mode = groups["mamba_cache_mode"]
        config.cache_config.mamba_block_size = block_size
    made = create_scheduler(config, kv_cache_config=cache, hash_block_size=HASH_SIZE)
    made.kv_event_publisher.publish = lambda batch: events.extend(batch.events)
    return made


def serve_twice(scheduler: Scheduler, events: list[Any], tokens: int) -> Any:
    """Serve a prompt, and then a request with the same prompt that asks for events of its hit.
    Returns this request; `events` has those of its steps."""
    for mode in ("incremental", "full"):
        events.clear()
        request = create_request(None, tokens, tokens, max_tokens=1, block_size=HASH_SIZE)
        request.kv_cache_report_mode = mode  # from SamplingParams.extra_args
        scheduler.add_request(request)
        while not request.is_finished():
            output = scheduler.schedule()
            reqs = [scheduler.requests[name] for name in output.num_scheduled_tokens]
            ran = create_model_runner_output(reqs)
            computed = request.num_computed_tokens == tokens
            ran.sampled_token_ids = [[7]] if computed else [[]]
            scheduler.update_from_output(output, ran)
    return request


@pytest.mark.parametrize(
    "groups",
    [{"swa_enabled": True, "sw_size": 16}, {"mamba_enabled": True, "mamba_cache_mode": "align"}],
    ids=["window", "mamba"],
)
def test_an_event_of_a_hit_names_what_is_cached(groups: dict[str, Any]) -> None:
    events: list[Any] = []
    scheduler = make_scheduler(16, events, **groups)
    request = serve_twice(scheduler, events, 4 * 16 + 1)
    pool = scheduler.kv_cache_manager.block_pool
    lacks = [n for n, key in enumerate(request.block_hashes) if not pool.get_cached_block(key, [1])]
    keys = [maybe_convert_block_hash(key) for key in request.block_hashes]
    for event in events:
        named = [n for n in lacks if event.group_idx == 1 and keys[n] in event.block_hashes]
        assert not named, (
            f"an event of a hit names blocks {named} of a group that caches none of them"
        )


def test_an_event_of_a_hit_that_ends_inside_a_block() -> None:
    events: list[Any] = []
    scheduler = make_scheduler(32, events, mamba_enabled=True, mamba_cache_mode="align")
    try:
        serve_twice(scheduler, events, 3 * 32 - 1)
    except IndexError as error:
        pytest.fail(f"the engine dies where it makes an event of a hit: {error!r}")
