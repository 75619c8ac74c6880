"""vLLM 0.32.0, NixlPushConnector, and blocks of P wider than those of D (`--block-size`): D dies
when P has written the first request.

P accepts such a D, and writes. D's handshake, which only registers P for notifications, checks no
block sizes. At the notification D's `get_transfer_results` takes what P's blocks are for what a
pull worker has read: it asks for a ratio that is below one, or for P's list of blocks, which D does
not have in push mode.

Here D's functions are the real ones: the registration, the handshake's check of what P sends, the
notification and the report. P and NIXL are not needed: what they send is written by hand.
"""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.distributed.kv_transfer.kv_connector.utils import TransferTopology
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import (
    NixlAgentMetadata,
    RemoteMeta,
    ReqMeta,
)
from vllm.v1.kv_cache_interface import FullAttentionSpec

from findings.helpers.workers import make_push_worker

FAILS_WITH = "D dies after P's write"

D_BLOCK, P_BLOCK = 16, 32  # --block-size
NUM_TOKENS = 4 * D_BLOCK
KERNEL_BLOCKS = {"as wide as the blocks": (D_BLOCK, P_BLOCK), "of 16 tokens": (16, 16)}
"""The blocks of the attention kernel on D and P."""


def sent_by_p(kernel_block: int) -> NixlAgentMetadata:
    """Return what P sends in the handshake."""
    return NixlAgentMetadata(
        engine_id="P",
        agent_metadata=b"P",
        kv_caches_base_addr=[0],
        device_id=0,
        num_blocks=10 * P_BLOCK // kernel_block,
        block_lens=[8 * kernel_block],
        block_strides=[8 * kernel_block],
        kv_cache_layout="LBHNC",
        block_size=kernel_block,
        ssm_sizes=(0, 0),
        attn_backend_name="FLASH_ATTN",
        physical_blocks_per_logical_kv_block=P_BLOCK // kernel_block,
    )


def make_worker(kernel_block: int, of_p: NixlAgentMetadata) -> Any:
    """Make D's worker for a model of one attention layer. It waits for r0. Its handshake, which
    runs in another thread and asks P over the network, gets what P sends at once."""
    worker, physical = make_push_worker(), D_BLOCK // kernel_block
    worker.block_size, worker._physical_blocks_per_logical_kv_block = kernel_block, physical
    worker._group_spec_types = (FullAttentionSpec,)
    worker.transfer_topo = TransferTopology(
        tp_rank=0,
        tp_size=1,
        block_size=kernel_block,
        engine_id="D",
        is_mla=False,
        is_mamba=False,
        total_num_kv_heads=1,
        attn_backends=[],
    )
    worker.nixl_wrapper = SimpleNamespace(add_remote_agent=lambda _data: "P")
    blocks = list(range(1, 1 + NUM_TOKENS // D_BLOCK))
    kernel_blocks = [block * physical + part for block in blocks for part in range(physical)]
    remote = RemoteMeta(block_ids=(), host="", port=0, engine_id="P", request_id="r0-on-p")
    worker._recving_metadata = {"r0": ReqMeta((blocks,), (kernel_blocks,), 1, remote=remote)}

    def handshake(*_anything: Any, **_more: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(worker._add_notif_only_remote_agent(of_p, 1))
        except Exception as error:
            future.set_exception(error)
        return future

    worker._ensure_handshake = handshake
    return worker


@pytest.mark.parametrize("kernel", KERNEL_BLOCKS)
def test_d_survives_a_p_with_wider_blocks(kernel: str) -> None:
    of_d, of_p = KERNEL_BLOCKS[kernel]
    worker = make_worker(of_d, sent_by_p(of_p))
    to_p = {"remote_engine_id": "P", "remote_host": "", "remote_port": 0, "remote_tp_size": 1}
    worker._send_registration_to_p("r0", to_p)
    if not worker._reg_send_inbox.empty():  # r0 is registered: P writes, and notifies D
        worker._pending_completion_notifs.put(b"r0:1")
    try:
        results = worker.get_transfer_results()
    except (AssertionError, IndexError) as error:
        pytest.fail(f"D dies after P's write, kernel blocks {kernel}: {error!r}")
    assert results.finished_recving == {"r0"}
    assert worker._invalid_block_ids.get_nowait() == {1, 2, 3, 4}
