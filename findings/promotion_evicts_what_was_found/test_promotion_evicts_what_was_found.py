"""vLLM 0.32.0, OffloadingConnector with a tier behind the CPU: a prompt that ends inside a Mamba
block ends the engine if the CPU tier is full.

With `--prefix-match-unit`, the connector first looks up the whole blocks of a prompt, and then what
is stored of the block in which it ends (its partial tail). If only the tier behind the CPU has the
tail, it is brought to the CPU, and the chunks that the first look-up has found there are evicted.
The tail is not there yet, so the whole blocks are loaded: `prepare_load` asserts that they are in
the cache.

Here the scheduler, the connector and its tiers are the real ones; the tier behind the CPU is vLLM's
example in memory.
"""

import mmap

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec

from findings.helpers.offloading import make_kv_cache_of
from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
)

FAILS_WITH = "not found in cache"

BLOCK_SIZE = 16
MATCH_UNIT = 4
NUM_BLOCKS = 1 + 20  # 0 is the null block
CPU_CHUNKS = 2  # the attention block and the state of one whole block
CHUNK_BYTES = mmap.PAGESIZE
NUM_PROMPT = BLOCK_SIZE + 7  # whole match units: 20 tokens


def make_scheduler() -> Scheduler:
    """Make the scheduler of an engine with a CPU tier of two chunks, and a tier behind it."""
    config = create_vllm_config(
        kv_connector="OffloadingConnector",
        kv_role="kv_both",
        kv_connector_extra_config={
            "cpu_bytes_to_use": CPU_CHUNKS * CHUNK_BYTES,
            "spec_name": "TieringOffloadingSpec",
            "secondary_tiers": [{"type": "example"}],
        },
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


def step(scheduler: Scheduler) -> None:
    """Take a step of which the worker has done all copies at its end."""
    output = scheduler.schedule()
    reqs = [scheduler.requests[name] for name in output.num_scheduled_tokens]
    jobs = output.kv_connector_metadata
    numbers = [*jobs.store_jobs, *jobs.load_jobs]
    ran = create_model_runner_output(
        reqs,
        finished_recving={job.req_id for job in jobs.load_jobs.values()},
        kv_connector_worker_meta=OffloadingWorkerMetadata(dict.fromkeys(numbers, 1)),
    )
    scheduler.update_from_output(output, ran)


def test_an_engine_survives_a_tail_that_is_not_in_memory() -> None:
    scheduler = make_scheduler()
    for number in (1, 2):
        scheduler.add_request(
            create_request(number, NUM_PROMPT, NUM_PROMPT, 4, block_size=MATCH_UNIT)
        )
        for _ in range(12):
            step(scheduler)
        assert not scheduler.requests
        assert scheduler.reset_prefix_cache()
