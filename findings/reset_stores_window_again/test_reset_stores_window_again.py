"""vLLM 0.32.0, OffloadingConnector beside sliding windows: after a reset of the connector's cache,
blocks that a running request has given up are stored again, with the tokens of another request.

`OffloadingConnectorScheduler.reset_cache` sets the store progress of running requests back to their
first chunk. Of a window, blocks before that progress may have been given up and taken by others:
`_update_req_states` forgets such a block only behind the progress, where it is still to be stored.
So the next step stores what is in them now under the keys of the request.

Here the scheduler and the connector are the real ones; the worker's report is written by hand.
"""

from typing import Any

import torch
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec

from findings.helpers.offloading import make_kv_cache_of, take_step
from findings.helpers.utils import create_request, create_scheduler, create_vllm_config

FAILS_WITH = "are stored under the keys of id-1, which has not got them"

BLOCK_SIZE = 16
WINDOW = 2 * BLOCK_SIZE
NUM_BLOCKS = 1 + 15  # 0 is the null block


def make_scheduler() -> Scheduler:
    """Make the scheduler of an engine with a CPU tier of 64 blocks or fewer."""
    config = create_vllm_config(
        max_num_batched_tokens=256,
        kv_connector="OffloadingConnector",
        kv_role="kv_both",
        kv_connector_extra_config={"cpu_bytes_to_use": 2**18},
    )
    shape: dict[str, Any] = {"block_size": BLOCK_SIZE, "num_kv_heads": 1, "head_size": 4}
    full = FullAttentionSpec(**shape, dtype=torch.float32)
    window = SlidingWindowSpec(**shape, dtype=torch.float32, sliding_window=WINDOW)
    cache = make_kv_cache_of(NUM_BLOCKS, full, window)
    return create_scheduler(config, kv_cache_config=cache, hash_block_size=BLOCK_SIZE)


def test_what_is_stored_after_a_reset_is_of_its_request() -> None:
    scheduler = make_scheduler()
    tables = scheduler.kv_cache_manager.get_block_ids
    scheduler.add_request(create_request(1, 5 * BLOCK_SIZE))
    stores = take_step(scheduler).store_jobs
    before = tables("id-1")[1]
    scheduler.add_request(create_request(2, 3 * BLOCK_SIZE))
    take_step(scheduler, completed=stores)
    taken = {block for table in tables("id-2") for block in table}
    assert taken & {*before}, "id-2 has blocks that the window of id-1 gave up"

    scheduler.reset_prefix_cache(reset_connector=True)
    jobs = [job for job in take_step(scheduler).store_jobs.values() if job.req_id == "id-1"]
    stored = {int(block) for job in jobs for block in job.src_spec.block_ids}
    assert stored, "what id-1 has is stored again"
    strange = sorted(stored - {block for table in tables("id-1") for block in table})
    assert not strange, (
        f"blocks {strange} are stored under the keys of id-1, which has not got them"
    )
