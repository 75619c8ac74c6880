"""vLLM 0.32.0, a request that the whole pool cannot hold. Part of vllm#39734; also vllm#52520.

The pool has one block too few for a prompt with Mamba layers in align mode: when a chunk passes a
block boundary, the old and the new state are held at the same time. The admission check of the
whole sequence counts one of them. The request is admitted, preempts itself, and then waits for ever
at the head of the queue. A short request behind it, which fits, is never scheduled.

The check of the pool at start (`get_kv_cache_configs`) would refuse such an engine.
"""

from typing import Any

import pytest
from vllm.utils.math_utils import cdiv
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
    make_kv_cache_config,
)

FAILS_WITH = "is never scheduled"

BLOCK_SIZE = 16
LONG, SHORT = 2 * BLOCK_SIZE + 1, 3
NUM_BLOCKS = 1 + 4  # the null block; the long prompt holds 3 + 2 blocks for a moment
STEPS = 20


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that the empty pool cannot hold is finished when it arrives."""
    released = Scheduler.add_request

    def add(self: Any, request: Any) -> None:
        released(self, request)
        last = request.num_prompt_tokens + request.max_tokens - 1
        attention = cdiv(last, BLOCK_SIZE)
        if attention + min(attention, 2) > NUM_BLOCKS - 1:
            self.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)

    monkeypatch.setattr(Scheduler, "add_request", add)


def step(scheduler: Scheduler) -> dict[str, int]:
    """Take one step; each request with a computed prompt samples a token. Returns the scheduled
    requests."""
    output = scheduler.schedule()
    reqs = [scheduler.requests[name] for name in output.num_scheduled_tokens]
    ran = create_model_runner_output(reqs)
    ran.sampled_token_ids = [[7] if r.num_computed_tokens >= r.num_tokens else [] for r in reqs]
    scheduler.update_from_output(output, ran)
    return dict(output.num_scheduled_tokens)


def test_nobody_waits_for_ever() -> None:
    config = create_vllm_config(max_model_len=256)
    config.kv_transfer_config = None
    config.cache_config.mamba_cache_mode, config.cache_config.mamba_block_size = "align", BLOCK_SIZE
    cache = make_kv_cache_config(
        BLOCK_SIZE, mamba_enabled=True, mamba_cache_mode="align", num_blocks=NUM_BLOCKS
    )
    scheduler = create_scheduler(config, kv_cache_config=cache)
    scheduler.add_request(create_request(1, LONG, max_tokens=1))
    scheduler.add_request(create_request(2, SHORT, max_tokens=1))
    seen = [step(scheduler) for _ in range(STEPS)]
    free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    assert any("id-2" in scheduled for scheduled in seen), (
        f"a request of 3 tokens is never scheduled in {STEPS} steps, with {free} of "
        f"{NUM_BLOCKS - 1} blocks free; the one before it got {seen[:3]} and nothing after"
    )
