"""vLLM 0.32.0, LMCacheMPConnector (the one in vLLM): blocks of a prompt are stored in LMCache
before they are computed. A later request with this prompt loads them, and gets wrong tokens.

The connector counts what is computed of a request: the tokens that were scheduled, and the blocks
that LMCache has. The latter were not loaded where the request must compute its whole prompt
(log-probabilities of the prompt), or where the load failed behind a hit in vLLM's own cache and the
policy is recompute. So of a prompt that is computed in chunks, blocks are stored too early.

Here the scheduler and the connector's scheduler side are the real ones. The package lmcache is not
needed: stand-ins take the place of the few names that vLLM imports from it. That of LMCache's
client answers each look-up with a number that the test sets, and does nothing else. The worker's
reports are written by hand.
"""

import pytest
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from findings.helpers.lmcache import Client, make_scheduler, take_step, transfers
from findings.helpers.utils import create_model_runner_output, create_request

FAILS_WITH = "tokens are stored before they are computed"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 20  # 0 is the null block
NUM_PROMPT = 6 * BLOCK_SIZE + 4
CHUNK = 20  # tokens of a step


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    """Make the scheduler of an engine with LMCache."""
    return make_scheduler(monkeypatch, CHUNK, NUM_BLOCKS)


def check_stores(scheduler: Scheduler, computed: int) -> None:
    """id-1, of which so many tokens are computed, is computed to its end. What is stored after a
    step must have been computed."""
    early, stored = {}, 0
    while computed < NUM_PROMPT:
        step = take_step(scheduler)
        computed += step.num_scheduled_tokens["id-1"]
        for op in transfers(step, "STORE"):
            stored += 1
            if op.end > computed:
                early[op.end] = computed
    assert stored
    assert not early, (
        "tokens are stored before they are computed: those up to the first number, where those up "
        f"to the second are computed: {early}"
    )


def test_a_prompt_with_log_probabilities_is_computed_before_it_is_stored(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "found", 2 * BLOCK_SIZE)
    request = create_request(1, NUM_PROMPT, max_tokens=8)
    request.skip_reading_prefix_cache = True  # as with `prompt_logprobs`
    scheduler.add_request(request)
    check_stores(scheduler, 0)


def test_a_prompt_whose_load_failed_is_computed_before_it_is_stored(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler.add_request(create_request(2, BLOCK_SIZE + 1, BLOCK_SIZE + 1))
    take_step(scheduler)  # now vLLM's own cache has the first block
    scheduler.finish_requests("id-2", RequestStatus.FINISHED_ABORTED)
    take_step(scheduler, finished_sending={"id-2"})
    monkeypatch.setattr(Client, "found", 3 * BLOCK_SIZE)
    scheduler.add_request(create_request(1, NUM_PROMPT, NUM_PROMPT, max_tokens=8))
    step = scheduler.schedule()
    (load,) = transfers(step, "RETRIEVE")
    assert (load.start, load.end) == (BLOCK_SIZE, 3 * BLOCK_SIZE)
    failed = create_model_runner_output([], None, {"id-1"}, invalid_block_ids=set(load.block_ids))
    scheduler.update_from_output(step, failed)
    check_stores(scheduler, BLOCK_SIZE)
