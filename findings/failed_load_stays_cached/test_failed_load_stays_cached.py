"""vLLM 0.32.0, prefix caching and a KV connector that loads within the step, with
`kv_load_failure_policy` recompute. One engine, no async scheduling.

Blocks that a step loads are in the prefix cache as soon as the step is scheduled. The connector's
worker reports that it could not load some blocks. With the policy recompute these blocks stay in
the cache, because the request will compute them. If the request is aborted first, the next request
with the same prefix hits blocks that were never written.
"""

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from findings.helpers.utils import (
    MockKVConfig,
    MockKVConnector,
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
)

FAILS_WITH = "that were never written"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 20  # 0 is the null block
NUM_LOADED = 2 * BLOCK_SIZE
NUM_PROMPT = NUM_LOADED + 8


def make_scheduler() -> Scheduler:
    """Make the scheduler of an engine whose store has the first tokens of a prompt."""
    config = create_vllm_config(
        max_num_batched_tokens=256,
        max_model_len=256,
        kv_connector="MockKVConnector",
        kv_connector_module_path=MockKVConnector.__module__,
        kv_connector_extra_config={"matched_tokens": NUM_LOADED, "is_async": False},
        kv_load_failure_policy="recompute",
        kv_role="kv_both",
    )
    return create_scheduler(config, NUM_BLOCKS)


def load_and_fail(scheduler: Scheduler) -> set[int]:
    """Run the step that loads into a request's first blocks, which fails. Then the store is empty.
    Returns these blocks."""
    request = create_request(1, NUM_PROMPT, NUM_PROMPT, max_tokens=2)
    scheduler.add_request(request)
    step = scheduler.schedule()
    assert step.num_scheduled_tokens == {"id-1": NUM_PROMPT - NUM_LOADED}
    (blocks,) = scheduler.kv_cache_manager.get_block_ids("id-1")
    failed = set(blocks[: NUM_LOADED // BLOCK_SIZE])
    ran = create_model_runner_output([request], invalid_block_ids=failed)
    scheduler.update_from_output(step, ran)
    scheduler.connector.config = MockKVConfig(matched_tokens=0)
    return failed


def test_a_block_that_was_not_loaded_is_no_hit() -> None:
    scheduler = make_scheduler()
    failed = load_and_fail(scheduler)
    assert scheduler.requests["id-1"].num_computed_tokens == 0
    scheduler.finish_requests("id-1", RequestStatus.FINISHED_ABORTED)

    scheduler.add_request(create_request(2, NUM_PROMPT, NUM_PROMPT))
    step = scheduler.schedule()
    computed = step.scheduled_new_reqs[0].num_computed_tokens
    (blocks,) = scheduler.kv_cache_manager.get_block_ids("id-2")
    hits = blocks[: computed // BLOCK_SIZE]
    assert not failed & set(hits), (
        f"{computed} tokens of a request count as computed, in blocks {hits} that were never "
        f"written: the store could not load {sorted(failed)}, and they stayed in the cache"
    )


def test_what_is_computed_again_is_a_hit() -> None:
    """The patch must not pass by caching nothing."""
    scheduler = make_scheduler()
    load_and_fail(scheduler)
    step = scheduler.schedule()
    scheduler.update_from_output(step, create_model_runner_output([*scheduler.running]))
    scheduler.add_request(create_request(2, NUM_PROMPT, NUM_PROMPT))
    assert scheduler.schedule().scheduled_new_reqs[0].num_computed_tokens == NUM_LOADED
