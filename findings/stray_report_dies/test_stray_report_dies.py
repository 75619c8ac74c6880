"""vLLM 0.32.0, MultiConnector with NixlConnector and a connector that saves what a request has when
it ends, and a request that is aborted while it loads. Reported as vllm#46240 and vllm#43226.

`LMCacheMPConnector.request_finished` returns True for every request, an aborted one too: it reports
the end of the save. NixlConnector reports the end of the read. The scheduler frees the request at
the first of the two reports, asserts at the second that it still has the request, and dies.

Here the scheduler and MultiConnector are the real ones; `Saves` returns True as LMCache's connector
does, which is not installed with vLLM. The worker's two reports are written by hand.
"""

from typing import Any

import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.base import SupportsHMA
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus

from findings.helpers.utils import (
    MockKVConnector,
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
)

FAILS_WITH = "the scheduler dies at a report of the aborted request"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 20  # 0 is the null block
READ: dict[str, Any] = {"finished_recving": {"id-1"}}
SAVED: dict[str, Any] = {"finished_sending": {"id-1"}}
ORDERS = {
    "read, saved": [READ, SAVED],
    "saved, read": [SAVED, READ],
    "in one step": [READ | SAVED],
}


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a request are freed at the last of its reports."""
    finished, free_request = Scheduler._connector_finished, Scheduler._free_request
    free_blocks = Scheduler._free_blocks
    reports: dict[str, int] = {}

    def of_save(self: Any, request: Request) -> Any:
        saves, params = finished(self, request)
        reports[request.request_id] += saves
        return saves, params

    def of_read(self: Any, request: Request, delay_free_blocks: bool = False) -> Any:
        reports[request.request_id] = int(delay_free_blocks)
        return free_request(self, request, delay_free_blocks)

    def free(self: Any, request: Request) -> None:
        reports[request.request_id] -= 1
        if reports[request.request_id] <= 0:
            free_blocks(self, request)

    monkeypatch.setattr(Scheduler, "_connector_finished", of_save)
    monkeypatch.setattr(Scheduler, "_free_request", of_read)
    monkeypatch.setattr(Scheduler, "_free_blocks", free)


class Saves(MockKVConnector, SupportsHMA):  # type: ignore[misc]
    """Has nothing to load, and saves each request that ends."""

    def request_finished(self, *_anything: Any) -> Any:
        return True, None

    request_finished_all_groups = request_finished


def make_scheduler() -> Scheduler:
    """Make D's scheduler."""
    saves: dict[str, Any] = {"kv_connector": "Saves", "kv_role": "kv_both"}
    saves["kv_connector_module_path"] = __name__
    saves["kv_connector_extra_config"] = {"matched_tokens": 0, "is_async": False}
    nixl = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
    config = create_vllm_config(
        kv_connector="MultiConnector",
        kv_role="kv_both",
        kv_connector_extra_config={"connectors": [nixl, saves]},
    )
    return create_scheduler(config, NUM_BLOCKS)


@pytest.mark.parametrize("order", ORDERS)
def test_the_engine_survives_an_abort(order: str) -> None:
    scheduler = make_scheduler()
    request = create_request(1, 3 * BLOCK_SIZE, do_remote_prefill=True)
    request.kv_transfer_params["remote_block_ids"] = ([1, 2, 3],)
    request.kv_transfer_params["remote_num_tokens"] = 3 * BLOCK_SIZE
    scheduler.add_request(request)
    scheduler.schedule()
    assert request.status == RequestStatus.WAITING_FOR_REMOTE_KVS
    scheduler.finish_requests("id-1", RequestStatus.FINISHED_ABORTED)
    for reports in ORDERS[order]:
        output = scheduler.schedule()
        try:
            scheduler.update_from_output(output, create_model_runner_output([], **reports))
        except AssertionError:
            pytest.fail(f"{order}: {FAILS_WITH}")
    assert not scheduler.requests
    assert scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == NUM_BLOCKS - 1
