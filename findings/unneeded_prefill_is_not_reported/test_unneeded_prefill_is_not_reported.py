"""vLLM 0.32.0, NixlPushConnector.

A request arrives on D and ends there before it is admitted: its user left, or the serving layer
rejected it. P keeps its blocks for it, and D's scheduler gives its worker an empty receive, so that
the worker notifies P. The pull worker notifies P; the push worker sends nothing, and P keeps the
blocks until its lease expires. The push worker also keeps the entry of the receive for ever. A
request that hits all it needs on D ends the same way.
"""

from typing import Any

from vllm.v1.request import RequestStatus

from findings.helpers.utils import create_request, create_scheduler, create_vllm_config
from findings.helpers.workers import make_push_worker, write_once

FAILS_WITH = "P gets no notification"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 9  # 0 is the null block
MODEL_LEN = 9 * BLOCK_SIZE  # as much as vLLM's check at start lets this pool serve


def test_p_is_told_of_a_request_that_d_does_not_serve() -> None:
    config = create_vllm_config(
        max_num_batched_tokens=4096, max_model_len=MODEL_LEN, kv_connector="NixlPushConnector"
    )
    scheduler, worker = create_scheduler(config, NUM_BLOCKS), make_push_worker()
    worker._remote_agents = {"P": {(0, 0): "P"}}
    # P has finished the request and keeps three blocks for it.
    request = create_request(1, 3 * BLOCK_SIZE, max_tokens=2, do_remote_prefill=True)
    request.kv_transfer_params["remote_block_ids"] = ([1, 2, 3],)
    request.kv_transfer_params["remote_engine_id"] = "P"
    scheduler.add_request(request)
    scheduler.finish_requests("id-1", RequestStatus.FINISHED_ABORTED)
    assert not scheduler.requests
    metadata: Any = scheduler.schedule().kv_connector_metadata
    assert set(metadata.reqs_to_recv) == {"id-1"}
    worker.start_load_kv(metadata)
    write_once(worker)
    sent, kept = worker.nixl_wrapper.sent, list(worker._recving_metadata)
    assert sent == [b"prefill-1:1"], (
        f"P gets no notification of id-1 ({sent}) and keeps 3 blocks until its lease expires; "
        f"D's worker keeps {kept} for ever"
    )
    assert not kept
