"""vLLM 0.32.0, LMCacheMPConnector (the one in vLLM), policy recompute: a request whose load failed
waits for ever, or LMCache gets KV of other tokens.

vLLM frees the blocks of the request and looks it up again. The connector still has its tracker of
the failed load, in the state READY and with the ids of the freed blocks. If LMCache has the prompt,
the connector promises a load again, and begins none. If LMCache has it no more, the request is
computed, and the connector appends its new blocks to the freed ones: what it stores under the key
of some tokens is the block of others.

Here the scheduler and the connector's scheduler side are the real ones. The package lmcache is not
needed: stand-ins take the place of the few names that vLLM imports from it. That of LMCache's
client answers each look-up with a number that the test sets, and does nothing else. The worker's
reports are written by hand.
"""

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from findings.helpers.lmcache import Client, make_scheduler, take_step, transfers
from findings.helpers.utils import create_model_runner_output, create_request

FAILS_WITH = "the failed load is still noted"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 20  # 0 is the null block
NUM_PROMPT = 6 * BLOCK_SIZE + 4
FOUND = 3 * BLOCK_SIZE


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    """Make the scheduler of an engine with LMCache. The load of a request's first three blocks
    fails."""
    made = make_scheduler(monkeypatch, BLOCK_SIZE, NUM_BLOCKS)
    monkeypatch.setattr(Client, "found", FOUND)
    made.add_request(create_request(1, NUM_PROMPT, max_tokens=8))
    step = made.schedule()
    (load,) = transfers(step, "RETRIEVE")
    assert (load.start, load.end) == (0, FOUND)
    made.update_from_output(
        step, create_model_runner_output([], None, {"id-1"}, invalid_block_ids=set(load.block_ids))
    )
    return made


def test_a_request_goes_on_after_a_failed_load(scheduler: Scheduler) -> None:
    steps = [take_step(scheduler) for _ in range(20)]
    assert any(step.num_scheduled_tokens or transfers(step, "RETRIEVE") for step in steps), (
        f"the failed load is still noted: in {len(steps)} steps id-1 is neither computed nor "
        f"loaded, it is {scheduler.requests['id-1'].status.name}"
    )


def test_what_is_stored_after_a_failed_load_is_of_its_tokens(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "found", 0)  # LMCache has the prompt no more
    stored: dict[int, int] = {}
    for _ in range(NUM_PROMPT // BLOCK_SIZE):
        for op in transfers(take_step(scheduler), "STORE"):
            stored |= dict(zip(range(op.start, op.end, BLOCK_SIZE), op.block_ids, strict=True))
    (blocks,) = scheduler.kv_cache_manager.get_block_ids("id-1")
    of = {block: place * BLOCK_SIZE for place, block in enumerate(blocks)}
    other = {token: of.get(block) for token, block in stored.items() if of.get(block) != token}
    assert stored
    assert not other, (
        "the failed load is still noted: stored is for the tokens from the first number on the "
        f"block of those from the second on: {other}"
    )
