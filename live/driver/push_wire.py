"""The worker side of the real NIXL push connector, with agents that transfer nothing by themselves.

The worker is not started, because it would open a side channel and register memory. Its own methods
run: they take the connector metadata of a step, run the writer's loop one round at a time, pair the
block lists, make the notifications, and report. NIXL's agents and descriptors are symbolic, and so
is the handshake, which counts as done.
"""

import queue
import threading
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from kvproof.live.driver.nixl import as_lists, fitted
from kvproof.live.fake import Fake, FakeSpace, unstarted
from kvproof.model import config
from kvproof.model.state import Lists

RANK = (0, 0)
"""The only rank of each side: pipeline and tensor."""


class BlockDescriptors(Fake, list[int]):
    """Descriptors of blocks: their ids in one list. `lists` has the ids by group."""

    def __init__(self, lists: Lists) -> None:
        super().__init__(block for group in lists for block in group)
        self.lists = lists


class PostedWrite(Fake):
    """A posted write: D's and P's kernel blocks by group, and the message that D gets at its end.
    `state` is NIXL's state of the write."""

    def __init__(self, ours: Lists, theirs: Lists, message: bytes) -> None:
        self.pairs = tuple(zip(theirs, ours, strict=True))
        self.message = message
        self.state = "PROC"


class Agent(Fake):
    """A fake of NIXL's agent. It keeps the posted writes; the environment decides how they end."""

    def __init__(self) -> None:
        self.peer = self
        self.received: list[bytes] = []
        self.writes: dict[int, PostedWrite] = {}
        self.posted = 0

    def get_new_notifs(self) -> dict[str, list[bytes]]:
        received, self.received = self.received, []
        return {"peer": received}

    def send_notif(self, _agent: str, notif_msg: bytes) -> None:
        self.peer.received.append(notif_msg)

    def make_prepped_xfer(
        self,
        _kind: str,
        _mine: Any,
        ours: BlockDescriptors,
        _side: Any,
        theirs: BlockDescriptors,
        notif_msg: bytes,
    ) -> int:
        self.posted += 1
        self.writes[self.posted] = PostedWrite(ours.lists, theirs.lists, notif_msg)
        return self.posted

    def transfer(self, _handle: int) -> None: ...

    def check_xfer_state(self, handle: int) -> str:
        return self.writes[handle].state

    def get_xfer_telemetry(self, _handle: int) -> Any:
        """The telemetry of a write that took no time and moved no bytes."""
        return FakeSpace(xferDuration=0, postDuration=0, totalBytes=0, descCount=0)

    def release_xfer_handle(self, handle: int) -> None:
        del self.writes[handle]


class _OneRound(Fake):
    """A fake of the event that stops the writer, so that its loop runs one round."""

    def __init__(self) -> None:
        self.begun = False

    def is_set(self) -> bool:
        self.begun = not self.begun
        return not self.begun

    def wait(self, timeout: float) -> None: ...


class _NoWait(Fake, threading.Event):
    """A fake of the event that wakes the writer; it is always set."""

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002
        return True


def worker(cfg: config.EngineConfig, peer: config.EngineConfig, agent: Agent) -> Any:
    """A worker of this engine whose agent and handshake are symbolic."""
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_worker import (
        NixlPushConnectorWorker,
    )
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.stats import NixlKVConnectorStats

    made = fitted(cfg, unstarted(NixlPushConnectorWorker))
    known = FakeSpace(
        remote_tp_size=1,
        remote_block_size=1,
        remote_physical_blocks_per_logical=peer.physical_per_logical,
    )
    made.nixl_wrapper = agent
    made._compute_desc_ids = lambda block_ids, **_: BlockDescriptors(as_lists(block_ids))
    made.engine_id, made.world_size, made.tp_rank = cfg.name, 1, 0
    made.pcp_rank, made.pcp_dcp_sharded = 0, False
    made.use_mla = made._is_csa_linear = made.use_host_buffer = False
    made.enable_permute_local_kv = made.enable_heterogeneous_attn_post_process = False
    made._is_hma_required = any(g.kind != "full" for g in cfg.groups)
    made._transfer_layer_group_ids, made._uses_region_group_mapping = (), False
    made.region_group_ids = list(range(len(cfg.groups)))
    # The handshake counts as done, and no peer is removed.
    made._remote_agents = {peer.name: {RANK: peer.name}}
    made._handshake_lock, made._handshake_futures = threading.RLock(), {}
    made._engine_ttl, made._engine_last_active = 0, {}
    made._hb_handshake_notif_only = True
    made.dst_region_group_ids = {peer.name: made.region_group_ids}
    made.dst_num_blocks = defaultdict(int)
    made.dst_region_num_blocks = defaultdict(list)
    made.dst_uses_region_group_mapping = defaultdict(bool)
    made.src_xfer_handles_by_block_size = {1: 0}
    made.dst_xfer_side_handles = {peer.name: {0: 0}}
    made.transfer_topo = FakeSpace(
        tp_ratio=lambda _size: 1,
        block_size_ratio=lambda _size: 1,
        get_engine_info=lambda _engine: known,
    )
    ranks: Sequence[Any] = [(0,) for _ in cfg.groups]
    made.tp_mappings = {peer.name: FakeSpace(all_source_ranks=(0,), source_ranks_per_group=ranks)}
    _without_work(made)
    made.xfer_stats = NixlKVConnectorStats()
    made._lease_extension = 20
    return made


def _without_work(made: Any) -> None:
    """Set the attributes that the constructors set: no transfer is in progress."""
    made._recving_metadata, made._reqs_to_send = {}, {}
    made._recving_transfers, made._sending_transfers = defaultdict(list), defaultdict(list)
    made._recv_failures, made._send_failures, made._reqs_to_process = set(), set(), set()
    made._replicated_pcp_done_sending, made._pending_recv_notifs = set(), {}
    made.consumer_notification_counts_by_req = defaultdict(int)
    made.expected_consumer_notifications_by_req = {}
    made._failed_recv_reqs, made._invalid_block_ids = queue.Queue(), queue.Queue()
    made._sending_transfers_lock = threading.Lock()
    made._push_finished_blocks, made._pending_d_registrations = {}, {}
    for inbox in ("_reg_send_inbox", "_finished_blocks_inbox", "_evict_finished_inbox"):
        setattr(made, inbox, queue.Queue())
    made._pending_completion_notifs, made._deferred_push_inbox = queue.Queue(), queue.Queue()
    made._push_writer_stop, made._push_writer_wake = _OneRound(), _NoWait()
