"""vLLM 0.32.0, SimpleCPUOffloadConnector and sliding windows: an event of a stored block has the
tokens of another block.

`StoreRequestState.block_ids` lists each block that a request ever got. A window gives blocks up,
and the step that gives one up may use it again at once. `_prepare_eager_store_specs` then finds it
at its old position. The block is stored under the hash that it has now, and `BlockStored` has
the tokens and the parent of the old position.

Here the scheduler and the connector's scheduler side are the real ones; the worker copies nothing,
and reports each copy as done.
"""

from typing import Any

import pytest
import torch
from vllm.config import KVEventsConfig
from vllm.distributed.kv_events import MEDIUM_CPU, BlockStored
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadWorkerMetadata

from findings.helpers.offloading import make_kv_cache_of
from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
)

FAILS_WITH = "is sent with tokens"

BLOCK_SIZE = 16
WINDOW = 2 * BLOCK_SIZE
CHUNK = 4 * BLOCK_SIZE  # max_num_batched_tokens
NUM_BLOCKS = 1 + 40  # 0 is the null block


def make_scheduler() -> Scheduler:
    """Make the scheduler of an engine with full attention and a sliding window."""
    config = create_vllm_config(
        max_num_batched_tokens=CHUNK,
        kv_connector="SimpleCPUOffloadConnector",
        kv_role="kv_both",
        kv_connector_extra_config={"cpu_bytes_to_use": 2**20},
    )
    config.kv_events_config = KVEventsConfig(enable_kv_cache_events=True, publisher="null")
    shape: dict[str, Any] = {"block_size": BLOCK_SIZE, "num_kv_heads": 1, "head_size": 4}
    full = FullAttentionSpec(**shape, dtype=torch.float32)
    window = SlidingWindowSpec(**shape, dtype=torch.float32, sliding_window=WINDOW)
    cache = make_kv_cache_of(NUM_BLOCKS, full, window)
    # As a real engine: which blocks of a window are cached.
    cache.prefix_cache_retention_interval = config.cache_config.prefix_cache_retention_interval
    return create_scheduler(config, kv_cache_config=cache, hash_block_size=BLOCK_SIZE)


def step(scheduler: Scheduler) -> None:
    """Take a step, in which the worker makes all copies."""
    output = scheduler.schedule()
    reqs = [scheduler.requests[name] for name in output.num_scheduled_tokens]
    event = output.kv_connector_metadata.store_event
    worker = SimpleCPUOffloadWorkerMetadata({event: 1} if event >= 0 else {})
    ran = create_model_runner_output(reqs, kv_connector_worker_meta=worker)
    scheduler.update_from_output(output, ran)


def test_an_event_has_the_tokens_of_its_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, events = make_scheduler(), []
    publisher = scheduler.kv_event_publisher
    monkeypatch.setattr(publisher, "publish", lambda batch: events.extend(batch.events))
    request = create_request(1, 7 * BLOCK_SIZE + 1, max_tokens=4)  # its tokens are their positions
    scheduler.add_request(request)
    for _ in range(6):  # two chunks of the prompt, and the answer
        step(scheduler)

    starts = range(0, 7 * BLOCK_SIZE, BLOCK_SIZE)
    keys = map(maybe_convert_block_hash, request.block_hashes)
    tokens = {key: [*range(at, at + BLOCK_SIZE)] for key, at in zip(keys, starts, strict=True)}
    stored = [each for each in events if isinstance(each, BlockStored)]
    stored = [each for each in stored if each.medium == MEDIUM_CPU]
    assert stored, "blocks are stored on the CPU"
    for each in stored:
        own, sent = tokens[each.block_hashes[0]], each.token_ids
        assert sent == own, (
            f"the hash of tokens {own[0]} to {own[-1]} is sent with tokens {sent[0]} to {sent[-1]}"
        )
