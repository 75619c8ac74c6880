"""Live KV transfers with NIXL pull, where the receiver reads: the effect of each event on them.

The key of a transfer is the name of the request, or the name of its reverse transfer from D to P
(see `follow_up_turns`). Each method takes the state, copies what a worker would copy, reports it to
the schedulers, and returns the state with the changed transfer.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from kvproof.live import adapt
from kvproof.live.driver import nixl
from kvproof.live.driver.node import Node
from kvproof.live.options import TO_DECODE
from kvproof.model import memory
from kvproof.model.config import Cluster
from kvproof.model.config.sides import giver, incoming, is_reverse, reverse_of, taker
from kvproof.model.environment import pulls
from kvproof.model.phases import Phase
from kvproof.model.state import State, Transfer


class Pull:
    """The transfers between the engines of a cluster. Without several engines there are none."""

    device = staticmethod(nullcontext)

    def __init__(self, cluster: Cluster, nodes: Mapping[str, Node]) -> None:
        self.cluster, self.nodes = cluster, nodes
        self.decode = nodes[cluster.decode.name]
        self.params: dict[str, dict[str, Any]] = {}
        self.reads: dict[str, Any] = {}

    def params_of_prefill(self, engine: str, request: str) -> dict[str, Any]:
        """The `kv_transfer_params` of a request that is sent to P. A follow-up turn has those that
        D returned."""
        return dict(self.params.get(incoming(self.cluster, engine, request), TO_DECODE))

    def params_of_decode(self, request: str) -> dict[str, Any]:
        """The `kv_transfer_params` of a request that is sent to D: those that P returned."""
        return dict(self.params[request])

    def completed(
        self,
        state: State,
        node: Node,  # noqa: ARG002
        returned: Mapping[str, Any],
        computed: Mapping[str, int],
    ) -> State:
        """Offer the blocks of the finished requests."""
        for request, params in returned.items():
            state = self._offered(state, request, params, computed[request])
        return state

    def _offered(
        self, state: State, request: str, params: dict[str, Any], computed_tokens: int
    ) -> State:
        if not (params.get("do_remote_prefill") or params.get("do_remote_decode")):
            return state
        key = request if params.get("do_remote_prefill") else reverse_of(request)
        self.params[key] = params
        lists = nixl.as_lists(params["remote_block_ids"])
        tokens = params.get("remote_num_tokens", computed_tokens)
        return state.with_transfer(key, Transfer(key, Phase.OFFERED, tokens, lists))

    def stepped(self, state: State, node: Node, meta: Any) -> State:
        """Start the reads that a worker received, and the notices to senders that no read is
        needed."""
        for name, read in meta.reqs_to_recv.items():
            key = incoming(self.cluster, node.cfg.name, name)
            transfer = state.transfer(key)
            self.reads[key] = read
            if transfer is not None and transfer.phase == Phase.EXPIRED:
                ended = (
                    pulls.turn_requested(transfer)
                    if adapt.awaits_read(read)
                    else pulls.turn_over(transfer)
                )
                state = state.with_transfer(key, ended)
            elif transfer is not None and transfer.phase == Phase.OFFERED:
                state = state.with_transfer(key, self._started(transfer, node, read))
        return state

    def _started(self, transfer: Transfer, node: Node, meta: Any) -> Transfer:
        if not adapt.awaits_read(meta):
            count = len(node.cfg.groups)
            empty: Any = ((),) * count
            nothing: Any = (((), ()),) * count
            return transfer.to(Phase.RELEASING, local=empty, pairs=nothing)
        local = nixl.as_lists(meta.local_block_ids)
        remote = nixl.as_lists(meta.remote.block_ids)
        source = giver(self.cluster, transfer.request).engine
        pairs = nixl.paired(source, node.nixl, local, remote)
        return transfer.to(Phase.READING, local=local, remote=remote, pairs=pairs)

    def done(self, state: State, key: str) -> State:
        """End a read successfully, or deliver the notice to its sender."""
        transfer = state.transfer(key)
        (source, sent), (sink, taken) = giver(self.cluster, key), taker(self.cluster, key)
        p, d = self.nodes[source.name], self.nodes[sink.name]
        if transfer is not None and transfer.phase == Phase.READING:
            filled = memory.copy(p.cfg, d.cfg, p.engine, d.engine, transfer.pairs)
            d.worker.memory = filled.memory
            d.report(finished_recving={taken})
        turned = transfer if is_reverse(key) else None
        state = state.with_transfer(key, turned and pulls.turn_over(turned))
        if sent in p.scheduler.requests:
            p.report(finished_sending={sent})
        return state

    def failed(self, state: State, key: str) -> State:
        """Let a read fail, and report it to its receiver."""
        transfer = state.transfer(key)
        if transfer is not None and transfer.phase == Phase.REFUSED:
            state = state.with_transfer(key, pulls.turn_over(transfer))
        elif transfer is not None:
            state = state.with_transfer(key, transfer.to(Phase.ABANDONED, local=(), pairs=()))
            state = state._replace(failures=state.failures + 1)
        sink, taken = taker(self.cluster, key)
        receiver = self.nodes[sink.name]
        receiver.report(**nixl.failed(receiver.nixl, taken, self.reads[key]))
        return state

    def aborted(self, state: State, node: Node, request: str) -> State:
        """Process an abort by an engine: D notifies P that it will not read."""
        transfer = state.transfer(request)
        if transfer is None or transfer.phase != Phase.OFFERED or node is not self.decode:
            return state
        if request not in node.connector.connector_scheduler._reqs_need_recv:
            return state
        return state.with_transfer(request, transfer.to(Phase.RELEASING))

    def lease_ended(self, state: State, key: str) -> State:
        """End the sender's lease: the sender frees the blocks."""
        transfer = state.transfer(key)
        source, sent = giver(self.cluster, key)
        self.nodes[source.name].report(finished_sending={sent})
        if transfer is not None and is_reverse(key):
            return state.with_transfer(key, pulls.turn_expired(transfer))
        if transfer is None or transfer.phase == Phase.LOST:
            return state
        state = state.with_transfer(key, None)
        if transfer.phase == Phase.OFFERED:
            state = state.ending(self.cluster.decode.name, key)
        return state

    def seen(self, state: State) -> State:
        """The same state: each event leaves the transfers as they are."""
        return state
