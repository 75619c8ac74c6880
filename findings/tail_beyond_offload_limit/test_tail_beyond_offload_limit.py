"""vLLM 0.32.0, OffloadingConnector: a request with `max_offload_tokens` ends the engine if its
prompt ends inside a Mamba block.

With `--prefix-match-unit`, the scheduler hands the state at the last match unit of a prompt (its
partial tail) to the connector. `_build_partial_tail_store_jobs` asserts that this boundary is not
above `max_offload_tokens`. The scheduler does not know that limit, which a client sets. The
limit 0 is taken for none there, so the tail is stored.

Here the scheduler and the connector are the real ones.
"""

import pytest
import torch
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec

from findings.helpers.offloading import make_kv_cache_of, take_step
from findings.helpers.utils import create_request, create_scheduler, create_vllm_config

FAILS_WITH = "the tail beyond the limit that a client set"

BLOCK_SIZE = 16
MATCH_UNIT = 4
NUM_BLOCKS = 1 + 20  # 0 is the null block
NUM_PROMPT = BLOCK_SIZE + 7  # whole match units: 20 tokens


def make_scheduler() -> Scheduler:
    """Make the scheduler of an engine with a CPU tier of 64 blocks or fewer."""
    config = create_vllm_config(
        kv_connector="OffloadingConnector",
        kv_role="kv_both",
        kv_connector_extra_config={"cpu_bytes_to_use": 2**18},
    )
    config.cache_config.mamba_cache_mode, config.cache_config.mamba_block_size = "align", BLOCK_SIZE
    config.cache_config.prefix_match_unit = MATCH_UNIT
    attention = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=4, dtype=torch.float32
    )
    mamba = MambaSpec(
        block_size=BLOCK_SIZE,
        shapes=((2, 2),),
        dtypes=(torch.float32,),
        mamba_cache_mode="align",
        page_size_padded=attention.page_size_bytes,
    )
    cache = make_kv_cache_of(NUM_BLOCKS, attention, mamba)
    return create_scheduler(config, kv_cache_config=cache, hash_block_size=MATCH_UNIT)


@pytest.mark.parametrize("limit", [BLOCK_SIZE, 0])
def test_no_more_is_stored_than_the_limit(limit: int) -> None:
    scheduler = make_scheduler()
    request = create_request(1, NUM_PROMPT, max_tokens=8, block_size=MATCH_UNIT)
    request.kv_transfer_params = {"max_offload_tokens": limit}
    scheduler.add_request(request)
    stored: list[int] = []
    try:
        for _ in range(4):
            jobs = take_step(scheduler).store_jobs.values()
            stored += [block for job in jobs for block in job.src_spec.block_ids]
    except AssertionError as error:
        pytest.fail(f"the tail beyond the limit that a client set ends the engine: {error!r}")
    states_and_blocks = 2 * (limit // BLOCK_SIZE)
    assert len(stored) == states_and_blocks, "the tail beyond the limit that a client set is stored"
