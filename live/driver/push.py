"""Live KV transfers with NIXL push: two real workers, and the phases of their transfers.

After each event the phase of a transfer is read from the workers and schedulers. The environment
ends writes and makes time pass. A scheduler's messages reach its worker after each event; vLLM
would send them with its next step.

The workers are NIXL's own, on the fakes of the device: they register KV caches of zeros, shake
hands, and write when the environment says so. What a write brings to D is copied in symbolic
memory, between the blocks for which the worker has computed descriptors.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import lcm
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput

from kvproof.live import build
from kvproof.live.connectors.caches import allocated, layout
from kvproof.live.connectors.observed import introduce
from kvproof.live.connectors.worker import model_layer
from kvproof.live.driver import nixl
from kvproof.live.driver.node import Node
from kvproof.live.fake import FakeParams
from kvproof.live.fakes.clock import Clock
from kvproof.live.fakes.nixl import PostedTransfer
from kvproof.live.fakes.replaced import OF_NIXL, Fakes, require
from kvproof.live.options import TO_DECODE
from kvproof.model import memory
from kvproof.model.config import Cluster
from kvproof.model.phases import Phase
from kvproof.model.plans.connector import Copies
from kvproof.model.state import ABORTED, LOADING, Engine, Lists, State, Transfer

LAYERS = 2
"""The number of layers of each of several groups: with more than one layer, all groups have pages
of one size."""

FOR_EVER = 10**9
"""The window of a write, which ends only when the environment says so."""

ROUNDS = 2
"""The number of rounds of the threads, D's first, after which all messages have arrived. In the
second round, P writes after a handshake."""


class Push:
    """The transfers from a P to a D. It has the methods of `Pull`."""

    def __init__(self, cluster: Cluster, nodes: Mapping[str, Node]) -> None:
        self.cluster = cluster
        self.prefill, self.decode = nodes[cluster.prefill.name], nodes[cluster.decode.name]
        self.clock = Clock(Copies(late=True, steps=FOR_EVER))
        self.finished: dict[str, tuple[int, Lists]] = {}
        self.registered: dict[str, Lists] = {}
        self.described: dict[int, tuple[Any, Lists]] = {}
        require(OF_NIXL)
        self.fakes = Fakes(OF_NIXL, self.clock)
        with self.device():
            for port, node in enumerate((self.decode, self.prefill), 1):
                node.connector.connector_scheduler.side_channel_port = port
                node.nixl = self._started(node)

    @contextmanager
    def device(self) -> Iterator[None]:
        """Put the fakes of the device in place, until the block ends. Outside it, the threads of
        the connectors stand."""
        self.clock.goes_on = self.clock.now
        try:
            with self.fakes:
                yield
        finally:
            self.clock.goes_on = FOR_EVER

    def _started(self, node: Node) -> Any:
        """NIXL's worker of an engine, with KV caches; other workers can find it."""
        from vllm.config import set_current_vllm_config
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

        cfg, vllm_config = node.cfg, node.connector.connector_scheduler.vllm_config
        ratio = cfg.physical_per_logical
        block = lcm(*(group.block_size for group in cfg.groups if group.attention))
        self.clock.kernel_tokens = block // ratio if ratio > 1 else 0
        layers = LAYERS if len(cfg.groups) > 1 else 1
        caches = build.with_tensors(vllm_config, build.kv_cache_config(cfg, build.Shape(layers)))
        names = [name for group in caches.kv_cache_groups for name in group.layer_names]
        context = vllm_config.compilation_config.static_forward_context
        context |= {name: model_layer() for name in names}
        with set_current_vllm_config(vllm_config):
            made = type(node.connector)(vllm_config, KVConnectorRole.WORKER, caches)
            made.register_kv_caches(allocated(caches, layout(vllm_config), ratio))
        introduce([made], node.connector)
        self._note_blocks(made.connector_worker)
        return made.connector_worker

    def _note_blocks(self, worker: Any) -> None:
        """Note of which blocks a worker computes descriptors."""
        compute = worker._compute_desc_ids

        def descriptors(block_ids: Any, **sizes: Any) -> Any:
            computed = compute(block_ids=block_ids, **sizes)
            self.described[id(computed)] = computed, nixl.as_lists(block_ids)
            return computed

        worker._compute_desc_ids = descriptors

    def params_of_prefill(self, *_: object) -> dict[str, Any]:
        """The `kv_transfer_params` of a request that is sent to P."""
        return dict(TO_DECODE)

    def params_of_decode(self, request: str) -> dict[str, Any]:
        """The `kv_transfer_params` for D from a router that sends a request to P and D at once. P's
        own id of the request and its blocks are not included."""
        producer = self.prefill.connector.connector_scheduler
        params = FakeParams(
            do_remote_prefill=True,
            do_remote_decode=False,
            remote_engine_id=producer.engine_id,
            remote_request_id=f"router-{request}",
            remote_host=producer.side_channel_host,
            remote_port=producer.side_channel_port,
            tp_size=1,
        )
        params.left_out = ("remote_block_ids",)
        return params

    def stepped(self, state: State, node: Node, meta: Any) -> State:
        """Send the connector metadata of a step to an engine's worker."""
        for name, registration in meta.push_registrations.items():
            self.registered[name] = nixl.as_lists(registration["local_block_ids"])
        node.nixl.start_load_kv(meta)
        for _ in range(ROUNDS):
            self.clock.run()
        return state

    def _idle(self, state: State, node: Node) -> State:
        """Run a step that computes nothing and sends the connector metadata to the worker."""
        empty = SchedulerOutput.make_empty()
        return self.stepped(state, node, node.connector.build_connector_meta(empty))

    def completed(
        self,
        state: State,
        node: Node,
        returned: Mapping[str, Any],
        computed: Mapping[str, int],  # noqa: ARG002
    ) -> State:
        """Record the requests that P has finished, and send their blocks to its worker."""
        for name, params in returned.items():
            tokens = int(params["remote_num_tokens"])
            self.finished[name] = tokens, nixl.as_lists(params["remote_block_ids"])
        return self._idle(state, node)

    def done(self, state: State, key: str) -> State:
        """End all writes of a request successfully."""
        return self._end_writes(state, key, well=True)

    def failed(self, state: State, key: str) -> State:
        """Let all writes of a request fail."""
        state = state._replace(failures=state.failures + 1)
        return self._end_writes(state, key, well=False)

    def aborted(self, state: State, node: Node, request: str) -> State:  # noqa: ARG002
        """Let the worker of the engine know of an abort."""
        return self._idle(state, node)

    def _end_writes(self, state: State, name: str, well: bool) -> State:
        """End all writes of a request. A successful write notifies D itself."""
        p, d = self.prefill, self.decode
        for number, write in self._writes(name).items():
            if well:
                sink = memory.copy(p.cfg, d.cfg, p.engine, d.engine, self._pairs(write))
                d.worker.memory = sink.memory
                d.engine = d.engine._replace(memory=sink.memory)
            self.prefill.nixl.nixl_wrapper.end(number, well)
        return self._report(state)

    def lease_ended(self, state: State, key: str) -> State:
        """End P's lease on a request, and D's deadline where no write can come."""
        phase, arrived = state.phase(key), self.decode.engine.find(key) is not None
        leases = self.prefill.nixl._reqs_to_send
        if key in leases:
            leases[key] = 0.0
        deadlines = self.decode.connector.connector_scheduler._push_registration_deadlines
        if phase in (Phase.REGISTERED, Phase.ABANDONED) and key in deadlines:
            deadlines[key] = 0.0
        state = self._report(self._idle(state, self.decode))
        if phase == Phase.OFFERED and not arrived:
            state = state.ending(self.cluster.decode.name, key)
        return state

    def _report(self, state: State) -> State:
        """Give both schedulers the reports of their workers, D first."""
        self._idle(state, self.decode)
        for node in (self.decode, self.prefill):
            finished = nixl.ended(node.nixl)
            if any(finished.values()):
                node.report(**{kind: names for kind, names in finished.items() if names})
        return self._idle(state, self.prefill)

    def seen(self, state: State) -> State:
        """The state with the transfers as they are now."""
        for job in self.cluster.jobs:
            state = state.with_transfer(job.name, self._seen(job.name))
        return state

    def _seen(self, name: str) -> Transfer | None:
        producer = self.prefill.nixl
        tokens, remote = self.finished.get(name, (0, ()))
        offered = Transfer(name, Phase.OFFERED, tokens, remote)
        for write in self._writes(name).values():
            phase = Phase.READING if name in producer._reqs_to_send else Phase.OVERDUE
            local = self.registered[name]
            return offered._replace(phase=phase, local=local, pairs=self._pairs(write))
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

    def _writes(self, name: str) -> dict[int, PostedTransfer]:
        """The writes of a request that have not ended, by number."""
        worker = self.prefill.nixl
        numbers = worker._sending_transfers.get(name, ())
        return {number: worker.nixl_wrapper.transfers[number] for number in numbers}

    def _pairs(self, write: PostedTransfer) -> nixl.Pairs:
        """D's and P's kernel blocks of a write, by group."""
        (_, theirs), (_, ours) = (
            self.described[id(ids)] for ids in (write.remote_ids, write.local_ids)
        )
        return tuple(zip(theirs, ours, strict=True))
