"""vLLM 0.32.0, streaming input (resumable requests), one engine. vllm#49439.

A session keeps its blocks while it waits for its user. Two sessions have filled the pool, and each
receives a part that needs one block more. vLLM preempts only running requests, and none runs. Every
further step schedules nothing, although either session would fit if the other one gave up its
blocks.
"""

from vllm.v1.core.sched.scheduler import Scheduler

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
)

FAILS_WITH = "and no step will ever schedule anything"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 6  # 0 is the null block
MODEL_LEN = 6 * BLOCK_SIZE  # as much as vLLM's check at start lets this pool serve
FIRST = 3 * BLOCK_SIZE  # tokens of the first part of a session: three blocks
NEXT = BLOCK_SIZE
STEPS = 20


def step(scheduler: Scheduler) -> dict[str, int]:
    """Take one step. Returns the scheduled tokens."""
    output = scheduler.schedule()
    reqs = [scheduler.requests[name] for name in output.num_scheduled_tokens]
    scheduler.update_from_output(output, create_model_runner_output(reqs))
    return dict(output.num_scheduled_tokens)


def test_sessions_that_wait_are_served_some_time() -> None:
    config = create_vllm_config(max_num_batched_tokens=2 * FIRST, max_model_len=MODEL_LEN)
    config.kv_transfer_config = None
    scheduler = create_scheduler(config, NUM_BLOCKS)

    def add(tokens: int) -> None:
        for session in (1, 2):
            part = create_request(session, tokens, max_tokens=1)
            part.resumable = True
            scheduler.add_request(part)

    add(FIRST)
    assert step(scheduler) == {"id-1": FIRST, "id-2": FIRST}
    assert scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == 0
    add(NEXT)
    served = [scheduled for _ in range(STEPS) if (scheduled := step(scheduler))]
    assert served, (
        f"Two sessions of {FIRST // BLOCK_SIZE} blocks each wait for one block more, of "
        f"{NUM_BLOCKS - 1} in all; none runs, and no step will ever schedule anything"
    )
