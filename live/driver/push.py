"""Live KV transfers with NIXL push: two real workers, and the phases of their transfers.

After each event the phase of a transfer is read from the workers and schedulers. The environment
ends writes and makes time pass. A scheduler's messages reach its worker after each event; vLLM
would send them with its next step.

A worker is not started, because it would open a side channel and register memory. Its own methods
run: they take the connector metadata of a step, run the writer's loop one round at a time, pair the
block lists, make the notifications, and report. NIXL's agents and descriptors are symbolic, and so
is the handshake, which counts as done.
"""

import queue
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput

from kvproof.live.driver import nixl
from kvproof.live.driver.nixl import as_lists, fitted
from kvproof.live.driver.node import Node
from kvproof.live.fake import Fake, FakeParams, FakeSpace, unstarted
from kvproof.model import config, memory
from kvproof.model.config import Cluster
from kvproof.model.phases import Phase
from kvproof.model.state import ABORTED, LOADING, Engine, Lists, State, Transfer

ROUNDS = 3
"""The number of rounds of the writers after which all messages have arrived: D's, P's and D's
again."""


class Push:
    """The transfers from a P to a D."""

    def __init__(self, cluster: Cluster, nodes: Mapping[str, Node]) -> None:
        p, d = cluster.prefill, cluster.decode
        self.cluster = cluster
        self.prefill, self.decode = nodes[p.name], nodes[d.name]
        self.agents = Agent(), Agent()
        self.agents[0].peer, self.agents[1].peer = self.agents[1], self.agents[0]
        self.workers = {
            p.name: push_worker(p, d, self.agents[0]),
            d.name: push_worker(d, p, self.agents[1]),
        }
        self.finished: dict[str, tuple[int, Lists]] = {}
        self.registered: dict[str, Lists] = {}

    def params_of_decode(self, name: str) -> dict[str, Any]:
        """The `kv_transfer_params` for D from a router that sends a request to P and D at once. P's
        own id of the request and its blocks are not included."""
        producer = self.prefill.connector.connector_scheduler
        params = FakeParams(
            do_remote_prefill=True,
            do_remote_decode=False,
            remote_engine_id=producer.engine_id,
            remote_request_id=f"router-{name}",
            remote_host=producer.side_channel_host,
            remote_port=producer.side_channel_port,
            tp_size=1,
        )
        params.left_out = ("remote_block_ids",)
        return params

    def stepped(self, node: Node, meta: Any) -> None:
        """Send the connector metadata of a step to an engine's worker."""
        for name, registration in meta.push_registrations.items():
            self.registered[name] = nixl.as_lists(registration["local_block_ids"])
        self.workers[node.cfg.name].start_load_kv(meta)
        for _ in range(ROUNDS):
            for worker in (self.workers[self.decode.cfg.name], self._writer()):
                worker._push_writer_loop()

    def idle(self, node: Node) -> None:
        """Run a step that computes nothing and sends the connector metadata to the worker."""
        empty = SchedulerOutput.make_empty()
        self.stepped(node, node.connector.build_connector_meta(empty))

    def note(self, name: str, params: Mapping[str, Any]) -> None:
        """Record that P has finished a request."""
        tokens = int(params["remote_num_tokens"])
        self.finished[name] = tokens, nixl.as_lists(params["remote_block_ids"])

    def end_write(self, name: str, well: bool) -> None:
        """End all writes of a request. A successful write notifies D itself."""
        p, d = self.prefill, self.decode
        for write in self._writes(name):
            if well:
                sink = memory.copy(p.cfg, d.cfg, p.engine, d.engine, write.pairs)
                d.worker.memory = sink.memory
                d.engine = d.engine._replace(memory=sink.memory)
                self.agents[1].received.append(write.message)
            write.state = "DONE" if well else "ERR"
        self._report()

    def let_time_pass(self, name: str, waits_in_vain: bool) -> None:
        """End P's lease on a request, and D's deadline where no write can come
        (`waits_in_vain`)."""
        leases = self._writer()._reqs_to_send
        if name in leases:
            leases[name] = 0.0
        deadlines = self.decode.connector.connector_scheduler._push_registration_deadlines
        if waits_in_vain and name in deadlines:
            deadlines[name] = 0.0
        self.idle(self.decode)
        self._report()

    def _report(self) -> None:
        """Give both schedulers the reports of their workers, D first."""
        self.idle(self.decode)
        for node in (self.decode, self.prefill):
            finished = nixl.ended(self.workers[node.cfg.name])
            if any(finished.values()):
                node.report(**{kind: names for kind, names in finished.items() if names})
        self.idle(self.prefill)

    def seen(self, state: State) -> State:
        """The state with the transfers as they are now."""
        for job in self.cluster.jobs:
            state = state.with_transfer(job.name, self._seen(job.name))
        return state

    def _seen(self, name: str) -> Transfer | None:
        producer = self._writer()
        tokens, remote = self.finished.get(name, (0, ()))
        offered = Transfer(name, Phase.OFFERED, tokens, remote)
        for write in self._writes(name):
            phase = Phase.READING if name in producer._reqs_to_send else Phase.OVERDUE
            local = self.registered[name]
            return offered._replace(phase=phase, local=local, pairs=write.pairs)
        if name in producer._push_finished_blocks:
            return offered
        held = self.decode.engine.find(name)
        if name in producer._pending_d_registrations and held is not None:
            return Transfer(name, Phase.REGISTERED, 0, (), self.registered[name])
        if held is not None and held.status in (LOADING, ABORTED):
            return offered._replace(phase=Phase.ABANDONED)
        return self._awaited(self.decode.engine, name)

    def _awaited(self, decode: Engine, name: str) -> Transfer | None:
        """The transfer of a request that D may still register. A D that died is not read again, and
        may have lost the request."""
        live = self.decode.scheduler.requests.get(name)
        if decode.find(name) is None or live is None:
            return None
        awaited = live.kv_transfer_params["do_remote_prefill"]
        return Transfer(name, Phase.AWAITED, 0, ()) if awaited else None

    def _writer(self) -> Any:
        return self.workers[self.prefill.cfg.name]

    def _writes(self, name: str) -> "list[PostedWrite]":
        """The writes of a request that have not ended."""
        handles = self._writer()._sending_transfers.get(name, ())
        return [self.agents[0].writes[handle] for handle in handles]


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


def push_worker(cfg: config.EngineConfig, peer: config.EngineConfig, agent: Agent) -> Any:
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
