"""vLLM 0.32.0, a connector that loads while other steps run, kv_load_failure_policy recompute: a
request whose load failed is never scheduled again, if it takes more than half of the pool.

`Scheduler._inflight_prefills` has the requests that hold blocks and need more. A load is admitted
only beside what these still need. A request that has given its blocks back after a failed load
stays among them. When the connector offers the load again, the request must fit beside itself, and
those behind it wait too.

Here the scheduler and the scheduler side of MooncakeStoreConnector are the real ones; the look-up
and the worker's report are written by hand.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.data import MooncakeLookupResult
from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.worker import LookupKeyClient
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
)

FAILS_WITH = "is never loaded or computed"

BLOCK_SIZE = 16
POOL = 20
"""Blocks that requests can have; the null block is one more."""
STORED = 11 * BLOCK_SIZE
"""Tokens of the prompt that the store has. The prompt takes 12 blocks."""
STEPS = 20


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that has given its blocks back reserves none."""
    released = Scheduler._update_waiting_for_remote_kv

    def update(self: Any, request: Request) -> None:
        released(self, request)
        if not request.num_computed_tokens:
            self._inflight_prefills.discard(request)

    monkeypatch.setattr(Scheduler, "_update_waiting_for_remote_kv", update)


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduler]:
    """Its store has the beginning of each prompt."""
    found = MooncakeLookupResult(hit_length=STORED)
    monkeypatch.setattr(LookupKeyClient, "_lookup", lambda *_: found)
    config = create_vllm_config(
        max_model_len=POOL * BLOCK_SIZE,
        kv_load_failure_policy="recompute",
        kv_connector="MooncakeStoreConnector",
        kv_role="kv_both",
    )
    made = create_scheduler(config, 1 + POOL, hash_block_size=BLOCK_SIZE)
    yield made
    made.connector.connector_scheduler.client.close()


def test_a_request_goes_on_after_a_failed_load(scheduler: Scheduler) -> None:
    scheduler.add_request(create_request(1, STORED + 4))
    output = scheduler.schedule()
    assert [each.req_id for each in output.kv_connector_metadata.requests] == ["id-1"]
    blocks = set(scheduler.kv_cache_manager.get_block_ids("id-1")[0])
    ran = create_model_runner_output([], None, {"id-1"}, blocks)
    ran.kv_connector_output.failed_recving = {"id-1"}
    scheduler.update_from_output(output, ran)
    scheduler.add_request(create_request(2, 4))
    for _ in range(STEPS):
        output = scheduler.schedule()
        if output.num_scheduled_tokens or output.kv_connector_metadata.requests:
            return
        scheduler.update_from_output(output, create_model_runner_output([]))
    free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    raise AssertionError(
        f"id-1 takes 12 blocks. After its load failed it is never loaded or computed in {STEPS} "
        f"steps, with {free} of {POOL} blocks free, and neither is id-2, a prompt of 4 tokens"
    )
