"""Workers of the NIXL connectors without memory, peers and threads, for reproducers of what they do
with block lists, registrations and reports. Only these attributes of them are set."""

import queue
import threading
from collections import defaultdict
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker import NixlBaseConnectorWorker
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_worker import NixlPushConnectorWorker
from vllm.utils.math_utils import cdiv
from vllm.v1.kv_cache_interface import KVCacheConfig

KERNEL_BLOCK_SIZE = 64
"""Tokens in a block of the attention kernel."""


class Agent:
    """NIXL's agent: it receives nothing, its transfers take time, and it records what is sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def get_new_notifs(self) -> dict[str, list[bytes]]:
        return {}

    def check_xfer_state(self, _handle: int) -> str:
        return "PROC"

    def send_notif(self, _agent: str, notif_msg: bytes) -> None:
        self.sent.append(notif_msg)


class Once:
    """Lets the writer's loop run one round each time."""

    def __init__(self) -> None:
        self.begun = False

    def is_set(self) -> bool:
        self.begun = not self.begun
        return not self.begun

    def wait(self, timeout: float) -> None: ...


def make_push_worker() -> Any:
    """Make a worker of `NixlPushConnector` that knows no peer. Its writer runs in `write_once`."""
    worker: Any = object.__new__(NixlPushConnectorWorker)
    worker.engine_id, worker.tp_rank, worker.world_size = "E", 0, 1
    worker.pcp_rank, worker.pcp_dcp_sharded, worker._engine_ttl = 0, False, 0
    worker.use_mla = worker._has_mamba = worker._is_hma_required = False
    worker.use_host_buffer = worker.enable_heterogeneous_attn_post_process = False
    worker.enable_permute_local_kv = False
    worker._physical_blocks_per_logical_kv_block = 1
    worker.nixl_wrapper, worker.transfer_topo = Agent(), SimpleNamespace()
    worker.xfer_stats = SimpleNamespace(record_kv_expired_req=lambda: None)
    worker._remote_agents, worker._handshake_futures = {}, {}
    worker._handshake_lock, worker._engine_last_active = threading.RLock(), {}
    worker._evict_stale_engines = lambda: None
    worker._reqs_to_send, worker._recving_metadata, worker._pending_recv_notifs = {}, {}, {}
    worker._reqs_to_process, worker._recv_failures, worker._send_failures = set(), set(), set()
    worker._replicated_pcp_done_sending = set()
    worker._recving_transfers, worker._sending_transfers = defaultdict(list), defaultdict(list)
    worker.consumer_notification_counts_by_req = defaultdict(int)
    worker.expected_consumer_notifications_by_req = {}
    worker._push_finished_blocks, worker._pending_d_registrations = {}, {}
    for name in ("_reg_send", "_finished_blocks", "_evict_finished", "_deferred_push"):
        setattr(worker, f"{name}_inbox", queue.Queue())
    for name in ("_pending_completion_notifs", "_failed_recv_reqs", "_invalid_block_ids"):
        setattr(worker, name, queue.Queue())
    worker._push_writer_stop, worker._push_writer_wake = Once(), threading.Event()
    worker._sending_transfers_lock = threading.Lock()
    worker._send_heartbeats = lambda _metadata: None
    return worker


def write_once(worker: Any) -> None:
    """Run one round of the writer's loop."""
    worker._push_writer_wake.set()
    worker._push_writer_loop()


def make_pull_worker(kv_cache_config: KVCacheConfig, kernel_blocks: int = 1) -> Any:
    """Make a worker that pulls blocks, each of which is so many blocks of the attention kernel."""
    worker: Any = object.__new__(NixlBaseConnectorWorker)
    worker.kv_cache_config, worker._has_mamba = kv_cache_config, False
    worker._physical_blocks_per_logical_kv_block = kernel_blocks
    specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
    worker._group_spec_types = tuple(type(spec) for spec in specs)
    return worker


def kernel_blocks(worker: Any, num_tokens: int, ratio: int) -> list[list[int]]:
    """Return the kernel blocks of a request on one engine; its blocks, each of `ratio` kernel
    blocks, are numbered from 0."""
    blocks = list(range(cdiv(num_tokens, ratio * KERNEL_BLOCK_SIZE)))
    expanded = worker._logical_to_kernel_block_ids([blocks], ratio)
    return [list(group) for group in expanded]


def handshake_refuses(kernel_blocks: int, of_peer: int) -> bool:
    """Return whether the handshake of a worker refuses a peer, whose blocks are so many blocks of
    the attention kernel. Both engines register blocks of the kernel's size."""
    worker, peer = MagicMock(), MagicMock(engine_id="P", num_blocks=100)
    peer.physical_blocks_per_logical_kv_block = of_peer
    peer.kv_cache_layout, peer.attn_backend_name = "LBNHC", "FLASHINFER"
    peer.block_lens, peer.block_strides, peer.kv_caches_base_addr = [4096], [4096], [0]
    peer.region_num_blocks = peer.region_group_ids = None
    peer.region_names = peer.region_mem_types = None
    worker.dcp_size = 1
    worker.use_mla = worker._has_mamba = worker.use_host_buffer = worker._is_hma_required = False
    worker._physical_blocks_per_logical_kv_block = kernel_blocks
    worker.vllm_config.cache_config.enable_prefix_caching = True
    worker.region_group_ids = worker._transfer_layer_region_indices = None
    worker._transfer_layer_names = None
    worker._head_sharded_draft_regions = ()  # required by 0.33.0
    worker.kv_cache_layout, worker.backend_name = "LBNHC", "FLASHINFER"
    worker.block_len_per_layer, worker.dst_num_blocks = [4096], {"P": 100}
    worker._is_region_replicated.return_value = False
    topology = worker.transfer_topo
    topology.tp_ratio.return_value = topology.block_size_ratio.return_value = 1
    topology.is_kv_replicated.return_value = False
    topology.total_num_kv_heads = topology.local_physical_heads = 1
    topology.get_engine_info.return_value.remote_tp_size = 1
    topology.get_engine_info.return_value.remote_dcp_size = 1
    check = NixlBaseConnectorWorker._validate_remote_agent_handshake
    try:
        check(worker, peer, remote_tp_size=1)
    except RuntimeError:
        return True
    return False
