"""vLLM 0.32.0, cache groups of unequal block sizes with Mamba layers in align mode (vllm#54076).

A Mamba state is cached where a chunk ends, and chunks must end at multiples of its block size. vLLM
splits them by `cache_config.block_size`, which an engine sets to the smallest block size of all
groups (`EngineCore._initialize_kv_caches`). A chunk ends inside a block of states, the next chunk
passes the boundary, and the state at the end of the first chunk is cached under the hash of the
whole block. A request that hits it continues from a state without the last tokens. No error is
raised.
"""

from dataclasses import replace
from typing import Any

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
    make_kv_cache_config,
)

FAILS_WITH = "which no chunk ended at"

BLOCK_SIZE = 16
STATE_BLOCK_SIZE = 48
BUDGET = 40
PROMPT = 100
NUM_BLOCKS = 50


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are split by the block size of the states."""
    released = Scheduler._mamba_block_aligned_split

    def split(self: Any, *args: Any, **kwargs: Any) -> int:
        smallest = self.cache_config.block_size
        self.cache_config.block_size = self.cache_config.mamba_block_size
        try:
            return int(released(self, *args, **kwargs))
        finally:
            self.cache_config.block_size = smallest

    monkeypatch.setattr(Scheduler, "_mamba_block_aligned_split", split)


def make_scheduler() -> Scheduler:
    config = create_vllm_config(
        block_size=STATE_BLOCK_SIZE, max_num_batched_tokens=BUDGET, max_model_len=256
    )
    config.kv_transfer_config = None
    config.cache_config.mamba_cache_mode = "align"
    config.cache_config.mamba_block_size = STATE_BLOCK_SIZE
    cache = make_kv_cache_config(
        STATE_BLOCK_SIZE, mamba_enabled=True, mamba_cache_mode="align", num_blocks=NUM_BLOCKS
    )
    full = cache.kv_cache_groups[0]
    full.kv_cache_spec = replace(full.kv_cache_spec, block_size=BLOCK_SIZE)
    scheduler = create_scheduler(config, kv_cache_config=cache, hash_block_size=BLOCK_SIZE)
    config.cache_config.block_size = BLOCK_SIZE  # a start-up sets it to that of the smallest group
    return scheduler


def test_a_cached_state_is_that_of_its_boundary() -> None:
    scheduler, request = make_scheduler(), create_request(1, PROMPT, max_tokens=1)
    scheduler.add_request(request)
    states = scheduler.kv_cache_manager.coordinator.single_type_managers[1]
    ends = []
    while request.num_output_tokens == 0:
        output = scheduler.schedule()
        ends.append(request.num_computed_tokens)
        blocks = [b for b in states.req_to_blocks["id-1"] if not b.is_null and b.block_hash]
        for block in blocks:
            cached = block.block_hash_num_tokens
            assert cached in ends, (
                f"block {block.block_id} is cached as the state of {cached} tokens, which no chunk "
                f"ended at: they ended at {ends}"
            )
        ran = create_model_runner_output([request])
        ran.sampled_token_ids = [[7] if request.num_computed_tokens >= PROMPT else []]
        scheduler.update_from_output(output, ran)
