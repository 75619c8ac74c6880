"""vLLM 0.32.0, full attention and Mamba layers in align mode, prefix hits finer than a block
(`--prefix-match-unit`, or cache groups of unequal block sizes). No public report was found.

The pool has as many blocks as the longest request needs; the check at start requires no more. A
prompt of that length is served. When it is submitted again, it hits inside a block and needs a
copy, and the cached block is held until the copy is made. The request now needs more blocks than
the pool has, and vLLM does not try a shorter hit. The request is never scheduled, although no other
request runs, and neither are the requests behind it.
"""

from vllm.v1.core.sched.scheduler import Scheduler

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
    make_kv_cache_config,
)

FAILS_WITH = "is never scheduled"

BLOCK_SIZE = 32
HASH_SIZE = 16
MAX_MODEL_LEN = 3 * BLOCK_SIZE
LONG = MAX_MODEL_LEN - 1
NUM_BLOCKS = 1 + 3 + 2  # the null block; three blocks of attention, and two for states
STEPS = 20


def step(scheduler: Scheduler) -> int:
    """Take one step; a request with a computed prompt samples a token. Returns the scheduled
    tokens."""
    output = scheduler.schedule()
    reqs = [scheduler.requests[name] for name in output.num_scheduled_tokens]
    ran = create_model_runner_output(reqs)
    ran.sampled_token_ids = [[7] if r.num_computed_tokens >= r.num_tokens else [] for r in reqs]
    scheduler.update_from_output(output, ran)
    return int(output.total_num_scheduled_tokens)


def test_a_prompt_sent_again_is_served_again() -> None:
    config = create_vllm_config(block_size=BLOCK_SIZE, max_model_len=MAX_MODEL_LEN)
    config.kv_transfer_config = None
    config.cache_config.mamba_cache_mode, config.cache_config.mamba_block_size = "align", BLOCK_SIZE
    cache = make_kv_cache_config(
        BLOCK_SIZE, mamba_enabled=True, mamba_cache_mode="align", num_blocks=NUM_BLOCKS
    )
    scheduler = create_scheduler(config, kv_cache_config=cache, hash_block_size=HASH_SIZE)
    for number, name in enumerate(("first", "again")):
        scheduler.add_request(create_request(number, LONG, LONG, 1, block_size=HASH_SIZE))
        scheduled = sum(step(scheduler) for _ in range(STEPS))
        free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        assert scheduled > 0, (
            f"the request {name!r} of {LONG} tokens is never scheduled in {STEPS} steps, "
            f"with {free} of {NUM_BLOCKS - 1} blocks free and no other request"
        )
