"""vLLM 0.32.0, NixlPushConnector. The case of vllm#55470.

P has finished a request and D has registered its blocks. When the lease expires, P's worker reports
the request as sent, and the scheduler allocates its blocks to others, although a write of them is
posted, or waits for a handshake and is posted later. D receives what the next owner computes, with
a report of success. D's heartbeats would renew the lease; with a router that sends to P and D at
once, they have an id that P does not know (vllm#53095).
"""

from concurrent.futures import Future
from typing import Any

import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import NixlConnectorMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_worker import NixlPushConnectorWorker

from findings.helpers.workers import make_push_worker, write_once

FAILS_WITH = "P has freed"

BLOCKS = ([1, 2, 3],)
"""P's blocks of the request, by group."""


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease with a write in progress does not expire; a write that has not begun by then is
    dropped."""
    reap = NixlPushConnectorWorker._reap_expired_send_leases
    push = NixlPushConnectorWorker._do_start_push_kv

    def reap_expired(self: Any, done_sending: set[str]) -> None:
        with self._sending_transfers_lock:
            written = {n: self._reqs_to_send.pop(n, None) for n in list(self._sending_transfers)}
        reap(self, done_sending)
        self._reqs_to_send |= {n: end for n, end in written.items() if end is not None}

    def start_push(self: Any, request_id: str, blocks: Any, registration: Any) -> None:
        if request_id in self._reqs_to_process:
            push(self, request_id, blocks, registration)

    monkeypatch.setattr(NixlPushConnectorWorker, "_reap_expired_send_leases", reap_expired)
    monkeypatch.setattr(NixlPushConnectorWorker, "_do_start_push_kv", start_push)


def make_worker() -> Any:
    """Make P's worker. It records its writes, which do not end."""
    worker = make_push_worker()
    worker.written = []

    def write(req_id: str, meta: Any) -> None:
        worker.written.append(meta.local_block_ids)
        worker._sending_transfers[req_id].append(1)

    worker._xfer_blocks_for_req = write
    return worker


def finish_request(worker: Any) -> None:
    """D's registration of r0 has arrived, and P finishes it."""
    worker._pending_d_registrations["r0"] = {
        "request_id": "r0",
        "decode_engine_id": "D",
        "decode_host": "localhost",
        "decode_port": 1234,
        "decode_tp_size": 1,
        "local_block_ids": BLOCKS,
    }
    metadata = NixlConnectorMetadata()
    metadata.reqs_in_batch = {"r0"}
    metadata.reqs_to_send = {"r0": float("inf")}
    metadata.push_finished_blocks = {"r0": BLOCKS}
    worker.start_load_kv(metadata)
    write_once(worker)


def let_lease_end(worker: Any) -> set[str]:
    """The lease of r0 expires. Returns the requests whose blocks the scheduler may free."""
    worker._reqs_to_send["r0"] = 0.0
    freed: set[str] = worker.get_transfer_results().finished_sending
    write_once(worker)
    return freed


def test_blocks_that_are_written_are_kept() -> None:
    worker = make_worker()
    worker._remote_agents["D"] = {(0, 0): "D"}
    finish_request(worker)
    assert worker.written == [BLOCKS]
    freed = let_lease_end(worker)
    assert not freed, f"P has freed blocks {BLOCKS} of r0, and NIXL is still writing them"


def test_blocks_that_are_let_go_are_not_written() -> None:
    worker = make_worker()
    handshake: Future[Any] = Future()
    worker._handshake_futures["D"] = handshake
    finish_request(worker)
    assert worker.written == []
    assert let_lease_end(worker) == {"r0"}
    worker._remote_agents["D"] = {(0, 0): "D"}
    handshake.set_result(({(0, 0): "D"}, 0.0))
    write_once(worker)
    assert not worker.written, f"P has freed blocks {BLOCKS} of r0, and then writes them"
