"""Live KV transfers with NIXL push: the sender writes, and the phases of its transfers are read.

After each event the phase of a transfer is read from the workers and schedulers. The environment
ends writes and makes time pass.
"""

from collections.abc import Mapping
from typing import Any

from kvproof.live.driver import nixl
from kvproof.live.driver.node import Node
from kvproof.live.driver.transfers import OVER, Transfers
from kvproof.live.fake import FakeParams
from kvproof.live.fakes.nixl import PostedTransfer
from kvproof.live.options import TO_DECODE
from kvproof.model.config import Cluster
from kvproof.model.phases import Phase
from kvproof.model.state import ABORTED, LOADING, Engine, Lists, State, Transfer

ROUNDS = 2
"""The number of rounds of the threads, D's first, after which all messages have arrived. In the
second round, P writes after a handshake."""


class Push(Transfers):
    """The transfers from a P to a D."""

    def __init__(self, cluster: Cluster, nodes: Mapping[str, Node]) -> None:
        self.finished: dict[str, tuple[int, Lists]] = {}
        self.registered: dict[str, Lists] = {}
        super().__init__(cluster, nodes)

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

    def _end_writes(self, state: State, name: str, well: bool) -> State:
        """End all writes of a request. A successful write notifies D itself."""
        writes = self._writes(name)
        for write in writes.values():
            if well:
                self._copied(self.prefill, self.decode, self._pairs(write))
        self._end(self.prefill, writes, well)
        return self._report(state)

    def lease_ended(self, state: State, key: str) -> State:
        """End P's lease on a request, and D's deadline where no write can come."""
        phase, arrived = state.phase(key), self.decode.engine.find(key) is not None
        self._end_lease(self.prefill, key)
        deadlines = self.decode.connector.connector_scheduler._push_registration_deadlines
        if phase in (Phase.REGISTERED, Phase.ABANDONED) and key in deadlines:
            deadlines[key] = OVER
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
        ours, theirs = self._lists(write)
        return tuple(zip(theirs, ours, strict=True))
