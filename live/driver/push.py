"""Live KV transfers with NIXL push: two real workers, and the phases of their transfers.

After each event the phase of a transfer is read from the workers and schedulers. The environment
ends writes and makes time pass. A scheduler's messages reach its worker after each event; vLLM
would send them with its next step.
"""

from collections.abc import Mapping
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput

from kvproof.live.driver import nixl, push_wire
from kvproof.live.driver.node import Node
from kvproof.live.fake import FakeParams
from kvproof.model import memory
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
        self.agents = push_wire.Agent(), push_wire.Agent()
        self.agents[0].peer, self.agents[1].peer = self.agents[1], self.agents[0]
        self.workers = {
            p.name: push_wire.worker(p, d, self.agents[0]),
            d.name: push_wire.worker(d, p, self.agents[1]),
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

    def _writes(self, name: str) -> list[push_wire.PostedWrite]:
        """The writes of a request that have not ended."""
        handles = self._writer()._sending_transfers.get(name, ())
        return [self.agents[0].writes[handle] for handle in handles]
