"""vLLM 0.32.0, OffloadingConnector: a reset of the prefix cache that preempts running requests ends
the engine. Mended in 0.33.0.

`reset_prefix_cache(reset_running_requests=True)` preempts between two steps. The next step names
the request in `preempted_req_ids`, and admits it again with a load of what was stored: in
`Scheduler.schedule` no request is admitted only if this step itself preempts.
`OffloadingConnectorScheduler.build_connector_meta` asserts that each job of a preempted request is
a store, and meets the new load.

Here the scheduler and the connector are the real ones; the worker's report is written by hand.
"""

import pytest
import torch
from vllm.v1.kv_cache_interface import FullAttentionSpec

from findings.helpers.offloading import make_kv_cache_of, take_step
from findings.helpers.utils import create_request, create_scheduler, create_vllm_config

FAILS_WITH = "the engine dies in the first step after the reset"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 20  # 0 is the null block
NUM_PROMPT = 2 * BLOCK_SIZE + 4


def test_a_request_that_runs_survives_a_reset() -> None:
    config = create_vllm_config(
        kv_connector="OffloadingConnector",
        kv_role="kv_both",
        kv_connector_extra_config={"cpu_bytes_to_use": 2**18},
    )
    spec = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=4, dtype=torch.float32
    )
    cache = make_kv_cache_of(NUM_BLOCKS, spec)
    scheduler = create_scheduler(config, kv_cache_config=cache, hash_block_size=BLOCK_SIZE)
    scheduler.add_request(create_request(1, NUM_PROMPT))
    stores = take_step(scheduler).store_jobs
    assert stores, "the blocks of the prompt are stored"
    take_step(scheduler, completed=stores)
    assert scheduler.reset_prefix_cache(reset_running_requests=True)
    try:
        loads = take_step(scheduler).load_jobs
    except AssertionError as error:
        pytest.fail(f"the engine dies in the first step after the reset: {error!r}")
    assert [job.req_id for job in loads.values()] == ["id-1"]
