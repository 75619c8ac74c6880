"""Live KV transfers with NIXL pull, where the receiver reads: the effect of each event on them.

A read ends when the environment says so, and so does the way of a message that no read is needed.
"""

from collections.abc import Mapping
from functools import reduce
from typing import Any

from kvproof.live import adapt
from kvproof.live.driver import nixl
from kvproof.live.driver.node import Node
from kvproof.live.driver.transfers import OVER, Transfers
from kvproof.live.options import TO_DECODE
from kvproof.model.config import Cluster
from kvproof.model.config.sides import giver, incoming, is_reverse, reverse_of, taker
from kvproof.model.environment import pulls
from kvproof.model.errors import AdapterDrift
from kvproof.model.phases import Phase
from kvproof.model.state import State, Transfer

EXPIRY = "remote_blocks_expiry_time"
"""The key under which D tells P until when it keeps blocks."""


class Pull(Transfers):
    """The transfers of a cluster with pull. `params` has what the sender of a transfer returned,
    and `reads` the copies of a transfer in progress, by number. `arriving` is the request of which
    a message is on the way to its sender."""

    def __init__(self, cluster: Cluster, nodes: Mapping[str, Node]) -> None:
        self.params: dict[str, dict[str, Any]] = {}
        self.reads: dict[str, tuple[int, ...]] = {}
        self.unreported: dict[str, dict[str, set[Any]]] = {name: {} for name in nodes}
        self.arriving = ""
        super().__init__(cluster, nodes)

    def _started(self, node: Node) -> Any:
        worker = super()._started(node)
        worker.nixl_wrapper.holds = lambda message: _about(message) != self.arriving
        return worker

    def params_of_prefill(self, engine: str, request: str) -> dict[str, Any]:
        """The `kv_transfer_params` of a request that is sent to P. A follow-up turn has those that
        D returned."""
        return self.params.get(incoming(self.cluster, engine, request), dict(TO_DECODE))

    def params_of_decode(self, request: str) -> dict[str, Any]:
        """The `kv_transfer_params` of a request that is sent to D: those that P returned."""
        return self.params[request]

    def completed(
        self, state: State, node: Node, returned: Mapping[str, Any], computed: Mapping[str, int]
    ) -> State:
        """Offer the blocks of the requests that an engine has finished, and let its worker know."""
        for request, params in returned.items():
            state = self._offered(state, request, params, computed[request])
        return self._idle(state, node) if returned else state

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
        """Send the connector metadata of a step to an engine's worker, which starts reads or
        messages to senders that no read is needed."""
        asked = {
            name: (
                adapt.awaits_read(read),
                nixl.as_lists(read.local_block_ids),
                nixl.as_lists(read.remote.block_ids),
            )
            for name, read in meta.reqs_to_recv.items()
        }
        node.nixl.start_load_kv(meta)
        for name, (awaited, local, remote) in asked.items():
            transfer = state.transfer(incoming(self.cluster, node.cfg.name, name))
            if transfer is not None:
                begun = self._begun(transfer, node, name, awaited)
                if begun.phase == Phase.READING:
                    begun = begun._replace(local=local, remote=remote)
                state = state.with_transfer(transfer.request, begun)
        return state

    def _begun(self, transfer: Transfer, node: Node, name: str, awaited: bool) -> Transfer:
        """The transfer of a request after the receiver's worker has got its metadata."""
        source, sent = giver(self.cluster, transfer.request)
        sender = self.nodes[source.name]
        if sender.cfg.name not in node.nixl._remote_agents:
            why = f"NIXL's worker of {node.cfg.name} refuses to read from {sender.cfg.name}"
            raise AdapterDrift(why, "NixlConnectorWorker.add_remote_agent")
        copies = node.nixl._recving_transfers.get(name)
        late = transfer.phase == Phase.EXPIRED
        if late and copies is None:
            return pulls.turn_requested(transfer) if awaited else pulls.turn_over(transfer)
        if transfer.phase not in (Phase.OFFERED, Phase.EXPIRED):
            return transfer
        groups = len(node.cfg.groups) if name in node.scheduler.requests else 0
        nothing: nixl.Pairs = (((), ()),) * groups
        if not awaited:
            told = sender.nixl.nixl_wrapper.inbox(lambda message: _about(message) == sent)
            releasing = transfer.to(Phase.RELEASING, local=((),) * groups, pairs=nothing)
            return releasing if told else transfer
        self.reads[transfer.request] = tuple(copies or ())
        made = node.nixl.nixl_wrapper.transfers
        pairs = [tuple(zip(*self._lists(made[n]), strict=True)) for n in copies or ()]
        read = reduce(_joined, pairs) if pairs else nothing
        return transfer._replace(phase=Phase.READING, pairs=read)

    def done(self, state: State, key: str) -> State:
        """End a read successfully, or deliver the message to its sender."""
        transfer = state.transfer(key)
        (source, sent), (sink, taken) = giver(self.cluster, key), taker(self.cluster, key)
        p, d = self.nodes[source.name], self.nodes[sink.name]
        if transfer is not None and transfer.phase == Phase.READING:
            self._copied(p, d, transfer.pairs)
            self._end(d, self.reads.pop(key), well=True)
            self._report(state, d, taken)
        turned = transfer if is_reverse(key) else None
        state = state.with_transfer(key, turned and pulls.turn_over(turned))
        self.arriving = sent
        self._report(state, p)
        self.arriving = ""
        return state

    def failed(self, state: State, key: str) -> State:
        """Let a read fail, and report it to its receiver."""
        transfer = state.transfer(key)
        sink, taken = taker(self.cluster, key)
        receiver = self.nodes[sink.name]
        if transfer is not None and transfer.phase == Phase.REFUSED:
            state = state.with_transfer(key, pulls.turn_over(transfer))
        elif transfer is not None:
            self._end(receiver, self.reads.pop(key), well=False)
            state = state.with_transfer(key, transfer.to(Phase.ABANDONED, local=(), pairs=()))
            state = state._replace(failures=state.failures + 1)
        self._report(state, receiver, taken)
        return state

    def lease_ended(self, state: State, key: str) -> State:
        """End the sender's lease: the sender frees the blocks."""
        transfer = state.transfer(key)
        source, sent = giver(self.cluster, key)
        sender = self.nodes[source.name]
        self._end_lease(sender, sent)
        if self.params[key].get(EXPIRY) is not None:
            self.params[key][EXPIRY] = OVER
        self._report(state, sender)
        if transfer is not None and is_reverse(key):
            return state.with_transfer(key, pulls.turn_expired(transfer))
        if transfer is None or transfer.phase == Phase.LOST:
            return state
        state = state.with_transfer(key, None)
        if transfer.phase == Phase.OFFERED:
            state = state.ending(self.cluster.decode.name, key)
        return state

    def _report(self, state: State, node: Node, taken: str = "") -> None:
        """Give the scheduler of an engine what its worker reports. Of reads that end by themselves,
        because there is nothing to copy or the worker refuses them, only the one that is `taken`
        ends now."""
        later = self._ending_later(state, node) - {taken}
        reports = self.unreported[node.cfg.name]
        for kind, names in nixl.ended(node.nixl).items():
            reports[kind] = reports.get(kind, set()) | names
        now = {kind: names - later for kind, names in reports.items()}
        self.unreported[node.cfg.name] = {kind: names & later for kind, names in reports.items()}
        if any(now.values()):
            node.report(**{kind: names for kind, names in now.items() if names})

    def _ending_later(self, state: State, node: Node) -> set[str]:
        """The requests of an engine whose transfer has no copy, and has not ended."""
        later = set()
        for transfer in state.transfers:
            sink, taken = taker(self.cluster, transfer.request)
            uncopied = transfer.phase == Phase.READING and not self.reads.get(transfer.request)
            if sink.name == node.cfg.name and (uncopied or transfer.phase == Phase.REFUSED):
                later.add(taken)
        return later


def _about(message: bytes) -> str:
    """The request of a message."""
    return message.decode().rpartition(":")[0]


def _joined(one: nixl.Pairs, other: nixl.Pairs) -> nixl.Pairs:
    """The pairs of blocks of two copies of a read, by cache group."""
    both = zip(one, other, strict=True)
    return tuple((ours + more, theirs + others) for (ours, theirs), (more, others) in both)
