"""vLLM 0.32.0, `--scheduling-policy priority` and prefix caching, one engine. Compare vllm#57580.

A request is scheduled, and the blocks that its tokens will fill are put into the prefix cache. Then
a request with higher priority lacks a block and preempts it, in the same step. The step runs
without the preempted request, and its blocks stay in the cache under hashes whose tokens were never
computed. Here the preempted request hits such a block itself when it is admitted again. Attention
layers only; the option `--long-prefill-token-threshold` lets a chunk and a decode share a step.
(With a Mamba group, no such option is needed.)
"""

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
)

FAILS_WITH = "were never computed"

BLOCK_SIZE = 16
CHUNK = 2 * BLOCK_SIZE
NUM_BLOCKS = 1 + 8  # 0 is the null block
MODEL_LEN = 8 * BLOCK_SIZE  # as much as vLLM's check at start lets this pool serve


def step(scheduler: Scheduler) -> SchedulerOutput:
    """Take one step: each request with a computed prompt samples a token."""
    output = scheduler.schedule()
    reqs = [scheduler.requests[name] for name in output.num_scheduled_tokens]
    ran = create_model_runner_output(reqs)
    ran.sampled_token_ids = [[7] if r.num_computed_tokens >= r.num_tokens else [] for r in reqs]
    scheduler.update_from_output(output, ran)
    return output


def test_a_preempted_request_hits_only_what_was_computed() -> None:
    config = create_vllm_config(max_num_batched_tokens=CHUNK + BLOCK_SIZE, max_model_len=MODEL_LEN)
    config.kv_transfer_config = None
    config.scheduler_config.policy = "priority"
    config.scheduler_config.long_prefill_token_threshold = CHUNK
    scheduler = create_scheduler(config, NUM_BLOCKS)
    low, high = create_request(1, num_tokens=100, max_tokens=1), create_request(2, 16, max_tokens=2)
    low.priority, high.priority = 1, 0
    scheduler.add_request(low)
    computed = step(scheduler).num_scheduled_tokens["id-1"]
    scheduler.add_request(high)
    output = step(scheduler)
    computed += output.num_scheduled_tokens["id-1"]
    assert computed == 2 * CHUNK + BLOCK_SIZE
    assert output.num_scheduled_tokens["id-2"] == BLOCK_SIZE

    # `low` takes the last free blocks for its third chunk, then `high` needs one to decode.
    output = step(scheduler)
    assert output.num_scheduled_tokens == {"id-2": 1}
    assert output.preempted_req_ids == {"id-1"}

    output = step(scheduler)
    (resumed,) = output.scheduled_cached_reqs.num_computed_tokens
    assert resumed <= computed, (
        f"A preempted request hits {resumed} tokens in the prefix cache when it is admitted "
        f"again; of these {resumed - computed} were never computed"
    )
    assert output.num_scheduled_tokens["id-1"] > 0
