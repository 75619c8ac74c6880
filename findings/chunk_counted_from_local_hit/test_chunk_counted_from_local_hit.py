"""vLLM 0.32.0, SimpleCPUOffloadConnector and chunked local attention: blocks that the layers read
are not loaded.

`get_num_new_matched_tokens` looks up the tokens behind the local hit as if the first of them were
the first of the prompt. Which blocks chunked local attention reads is counted from there: where the
local hit is no multiple of the chunk, the beginning of the last chunk is taken for a part of the
chunk before, which nobody reads, and is not loaded. The block has what another request left there.

Here the scheduler and the connector's scheduler side are the real ones; the worker copies nothing,
and reports each copy as done.
"""

from typing import Any

import torch
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import ChunkedLocalAttentionSpec, FullAttentionSpec
from vllm.v1.request import Request, RequestStatus
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadWorkerMetadata

from findings.helpers.offloading import make_kv_cache_of
from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
)

FAILS_WITH = "which its layers read, is not loaded"

BLOCK_SIZE = 4
CHUNK = 8  # attention_chunk_size
NUM_BLOCKS = 1 + 40  # 0 is the null block


def make_scheduler() -> Scheduler:
    """Make the scheduler of an engine with full attention and chunked local attention."""
    config = create_vllm_config(
        block_size=BLOCK_SIZE,
        kv_connector="SimpleCPUOffloadConnector",
        kv_role="kv_both",
        kv_connector_extra_config={"cpu_bytes_to_use": 2**20},
    )
    shape: dict[str, Any] = {"block_size": BLOCK_SIZE, "num_kv_heads": 1, "head_size": 4}
    full = FullAttentionSpec(**shape, dtype=torch.float32)
    local = ChunkedLocalAttentionSpec(**shape, dtype=torch.float32, attention_chunk_size=CHUNK)
    cache = make_kv_cache_of(NUM_BLOCKS, full, local)
    return create_scheduler(config, kv_cache_config=cache, hash_block_size=BLOCK_SIZE)


def make_request(number: int, tokens: int) -> Request:
    """Make a request whose prompt begins as that of the others."""
    return create_request(number, tokens, tokens, max_tokens=4, block_size=BLOCK_SIZE)


def step(scheduler: Scheduler) -> Any:
    """Take a step, in which the worker makes all copies. Returns the metadata of the connector."""
    output = scheduler.schedule()
    metadata = output.kv_connector_metadata
    reqs = [scheduler.requests[name] for name in output.num_scheduled_tokens]
    stored = {metadata.store_event: 1} if metadata.store_event >= 0 else {}
    worker = SimpleCPUOffloadWorkerMetadata(stored)
    ran = create_model_runner_output(reqs, kv_connector_worker_meta=worker)
    scheduler.update_from_output(output, ran)
    return metadata


def test_what_the_layers_read_is_loaded() -> None:
    scheduler = make_scheduler()
    scheduler.add_request(make_request(1, 6 * BLOCK_SIZE))
    for _ in range(6):  # it ends, and its blocks are on the CPU
        step(scheduler)
    assert scheduler.reset_prefix_cache()

    # Its first block is in the GPU's prefix cache again: half a chunk.
    first = make_request(2, BLOCK_SIZE + 1)
    first.skip_reading_prefix_cache = True
    scheduler.add_request(first)
    step(scheduler)
    scheduler.finish_requests("id-2", RequestStatus.FINISHED_ABORTED)

    scheduler.add_request(make_request(3, 5 * BLOCK_SIZE + 1))
    loaded = step(scheduler).load_gpu_blocks
    # Token 20 reads tokens 16 to 19 of its chunk, which begins at token 16.
    table = scheduler.kv_cache_manager.get_block_ids("id-3")[1]
    computed = scheduler.requests["id-3"].status == RequestStatus.RUNNING
    assert computed or table[4] in loaded, (
        f"block {table[4]} of tokens 16 to 19, which its layers read, is not loaded: {loaded}"
    )
