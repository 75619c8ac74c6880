"""vLLM 0.32.0, OffloadingConnector with chunks of several blocks, beside sliding windows: a chunk
is stored in part, under the key of the whole, and another request loads all of it.

A request that begins with a hit in the engine's own cache has the null block where its window needs
nothing. Of the blocks of a chunk, `_build_store_jobs` looks at the last one alone: where it is
there, the chunk is stored, without the null blocks before it. A request whose window begins earlier
in this chunk is offered it, and loads a block that nobody has stored.

Here the scheduler and the connector are the real ones; the worker's report is written by hand.
On 0.32.0 the test fails. 0.33.0 has it mended.
"""

from typing import Any

import torch
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec
from vllm.v1.request import Request

from findings.helpers.offloading import make_kv_cache_of, take_step
from findings.helpers.utils import create_request, create_scheduler, create_vllm_config

FAILS_WITH = "are loaded, and nobody has stored them"

BLOCK_SIZE = 16
WINDOW = 2 * BLOCK_SIZE
CHUNK = 2  # blocks
NUM_BLOCKS = 1 + 30  # 0 is the null block


def make_scheduler() -> Scheduler:
    """Make the scheduler of an engine with a CPU tier of 64 chunks or fewer."""
    config = create_vllm_config(
        max_num_batched_tokens=256,
        kv_connector="OffloadingConnector",
        kv_role="kv_both",
        kv_connector_extra_config={"cpu_bytes_to_use": 2**18, "blocks_per_chunk": CHUNK},
    )
    shape: dict[str, Any] = {"block_size": BLOCK_SIZE, "num_kv_heads": 1, "head_size": 4}
    full = FullAttentionSpec(**shape, dtype=torch.float32)
    window = SlidingWindowSpec(**shape, dtype=torch.float32, sliding_window=WINDOW)
    cache = make_kv_cache_of(NUM_BLOCKS, full, window)
    return create_scheduler(config, kv_cache_config=cache, hash_block_size=BLOCK_SIZE)


def make_request(number: int, tokens: int) -> Request:
    """Make a request whose prompt begins as that of the others."""
    return create_request(number, tokens, tokens, max_tokens=1)


def parts(blocks: Any, chunks: Any) -> set[tuple[int, int]]:
    """Return the parts of chunks that a job copies: the chunk, and the place of the block in it."""
    found: set[tuple[int, int]] = set()
    left = [int(chunk) for chunk in chunks.block_ids]
    for count, first in zip(blocks.group_sizes, blocks.block_indices, strict=True):
        places = [(first % CHUNK + number) for number in range(count)]
        own = left[: places[-1] // CHUNK + 1] if places else []
        left = left[len(own) :]
        found |= {(own[place // CHUNK], place % CHUNK) for place in places}
    return found


def serve(scheduler: Scheduler, request: Request) -> set[tuple[int, int]]:
    """Serve a request, and return what is stored meanwhile."""
    scheduler.add_request(request)
    stored: set[tuple[int, int]] = set()
    made: dict[int, Any] = {}
    for _ in range(4):
        made = take_step(scheduler, completed=made).store_jobs
        for job in made.values():
            stored |= parts(job.src_spec, job.dst_spec)
    return stored


def test_what_is_loaded_was_stored() -> None:
    scheduler = make_scheduler()
    stored = serve(scheduler, make_request(1, 12 * BLOCK_SIZE + 8))
    stored |= serve(scheduler, make_request(2, 8 * BLOCK_SIZE))  # it has a hit
    scheduler.reset_prefix_cache()
    scheduler.add_request(make_request(3, 8 * BLOCK_SIZE))
    scheduler.add_request(make_request(4, 12 * BLOCK_SIZE + 8))
    loads = take_step(scheduler).load_jobs.values()
    assert loads, "what the first one had is loaded"
    strange = sorted(set().union(*(parts(job.dst_spec, job.src_spec) for job in loads)) - stored)
    assert not strange, f"(chunk, block of it) {strange} are loaded, and nobody has stored them"
