"""vLLM 0.32.0, NixlPushConnector. Reported as vllm#46283, vllm#53095 and vllm#50754.

D has registered its blocks with P and waits for the write. P does not have the request any more, or
could not write, and no write arrives. The watchdog over registrations only writes a log line: the
request waits for ever and keeps its blocks. If its user leaves, the blocks are still held.
"""

import time
from typing import Any

import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_scheduler import (
    NixlPushConnectorScheduler,
)
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_worker import NixlPushConnectorWorker
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
)
from findings.helpers.workers import make_push_worker

FAILS_WITH = "is still held after its deadline"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 9  # 0 is the null block
MODEL_LEN = 9 * BLOCK_SIZE  # as much as vLLM's check at start lets this pool serve
TIMEOUT_S = 0.05
"""`push_registration_timeout`; it is 480 s by default."""


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog reports an expired registration to the worker as a failed load, also for a
    request that was aborted meanwhile. Its timeout must be longer than P can hold a
    registration."""
    build = NixlPushConnectorScheduler.build_connector_meta
    finished = NixlPushConnectorScheduler.request_finished
    start = NixlPushConnectorWorker.start_load_kv

    def build_connector_meta(self: Any, output: Any) -> Any:
        now = time.perf_counter()
        late = [n for n, end in self._push_registration_deadlines.items() if end <= now]
        meta: Any = build(self, output)
        meta.push_timed_out = late
        return meta

    def request_finished(self: Any, request: Any, block_ids: Any) -> Any:
        name = request.request_id
        deadline = self._push_registration_deadlines.get(name)
        result = finished(self, request, block_ids)
        if deadline is not None:
            self._push_registration_deadlines[name] = deadline
        return result

    def start_load_kv(self: Any, metadata: Any) -> None:
        start(self, metadata)
        for name in metadata.push_timed_out:
            self._failed_recv_reqs.put(name)

    monkeypatch.setattr(NixlPushConnectorScheduler, "build_connector_meta", build_connector_meta)
    monkeypatch.setattr(NixlPushConnectorScheduler, "request_finished", request_finished)
    monkeypatch.setattr(NixlPushConnectorWorker, "start_load_kv", start_load_kv)


def step(scheduler: Scheduler, worker: Any) -> None:
    """Schedule, give the worker its metadata, process its reports."""
    output = scheduler.schedule()
    worker.start_load_kv(output.kv_connector_metadata)
    results = worker.get_transfer_results()
    ran = create_model_runner_output(
        [], results.finished_sending, results.finished_recving or set()
    )
    ran.kv_connector_output.failed_recving = results.failed_recving
    scheduler.update_from_output(output, ran)


@pytest.mark.parametrize("aborted", [False, True])
def test_a_write_that_does_not_come_is_given_up(aborted: bool) -> None:
    """D registers a request that a router has sent to P and D at once, whose user may leave; after
    its deadline it must be gone with its blocks."""
    config = create_vllm_config(
        max_num_batched_tokens=4096,
        max_model_len=MODEL_LEN,
        kv_connector="NixlPushConnector",
        kv_connector_extra_config={"push_registration_timeout": TIMEOUT_S},
    )
    scheduler, worker = create_scheduler(config, NUM_BLOCKS), make_push_worker()
    pool = scheduler.kv_cache_manager.block_pool
    free = pool.get_num_free_blocks()
    request = create_request(1, 3 * BLOCK_SIZE, max_tokens=2, do_remote_prefill=True)
    del request.kv_transfer_params["remote_block_ids"]
    scheduler.add_request(request)
    step(scheduler, worker)
    if aborted:
        scheduler.finish_requests("id-1", RequestStatus.FINISHED_ABORTED)
    time.sleep(2 * TIMEOUT_S)
    for _ in range(5):
        step(scheduler, worker)
    held = free - pool.get_num_free_blocks()
    assert not scheduler.requests, (
        f"id-1 ({request.status.name}) is still held after its deadline, with {held} blocks"
    )
    assert held == 0
