"""vLLM 0.32.0, NixlConnector, a model with full attention, sliding windows and Mamba, and Mamba
blocks that are wider than the others. Hits may then end inside a Mamba block.

D has loaded a prompt: all its blocks of full attention, and the end of its window. A second prompt
has a prefix of it, which full attention hits and the window does not. The load brings more tokens
than the hit has beyond the last whole Mamba block, so D gives these up, and asserts that the window
group has the blocks before. It has none, and the engine dies.
"""

from dataclasses import replace
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
    make_kv_cache_config,
)

FAILS_WITH = "AssertionError"

BLOCK_SIZE, MAMBA_BLOCK_SIZE = 16, 32
WINDOW = 24
POOL = 40
"""Blocks that requests can have; the null block is one more."""
LOADED, SHARED, SECOND = 72, 48, 64
"""Tokens: the first prompt, what the second one shares with it, and the second prompt."""


def make_scheduler() -> Scheduler:
    """Make D's scheduler."""
    config = create_vllm_config(
        block_size=MAMBA_BLOCK_SIZE, max_num_batched_tokens=128, max_model_len=128
    )
    config.cache_config.mamba_cache_mode = "align"
    config.cache_config.mamba_block_size = MAMBA_BLOCK_SIZE
    cache = make_kv_cache_config(
        BLOCK_SIZE,
        swa_enabled=True,
        mamba_enabled=True,
        sw_size=WINDOW,
        num_blocks=POOL + 1,
        mamba_cache_mode="align",
    )
    mamba = cache.kv_cache_groups[2]
    mamba.kv_cache_spec = replace(mamba.kv_cache_spec, block_size=MAMBA_BLOCK_SIZE)
    return create_scheduler(config, kv_cache_config=cache, hash_block_size=BLOCK_SIZE)


def step(scheduler: Scheduler, **reports: Any) -> SchedulerOutput:
    """Take one step: sample a token for each scheduled request, and report the loads."""
    output = scheduler.schedule()
    reqs = [scheduler.requests[name] for name in output.num_scheduled_tokens]
    scheduler.update_from_output(output, create_model_runner_output(reqs, **reports))
    return output


def test_a_prefix_of_a_loaded_prompt_is_served() -> None:
    decode = make_scheduler()
    for number, tokens in ((1, LOADED), (2, SECOND)):
        request = create_request(number, tokens, SHARED, max_tokens=1, do_remote_prefill=True)
        # P offers all tokens but the last, after which a state is not needed.
        blocks = list(range(1, -(-tokens // BLOCK_SIZE) + 1))
        request.kv_transfer_params["remote_block_ids"] = (blocks, blocks[-2:], blocks[-1:])
        request.kv_transfer_params["remote_num_tokens"] = tokens
        decode.add_request(request)
        loads = step(decode).kv_connector_metadata.reqs_to_recv
        assert set(loads) == {request.request_id}
        step(decode, finished_recving={request.request_id})
        step(decode)
    assert not decode.requests
