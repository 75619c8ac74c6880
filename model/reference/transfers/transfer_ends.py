"""The end of a transfer, for pull and push: all blocks are copied, the load has failed, or a worker
sends a stray report.

Sources: `Scheduler._update_from_kv_xfer_finished` and `_update_waiting_for_remote_kv` of vLLM V1.
"""

from kvproof.model import config, memory
from kvproof.model.config.sides import is_reverse, sides
from kvproof.model.environment import disturbances, turns
from kvproof.model.errors import NotAllowed
from kvproof.model.events import TransferDone
from kvproof.model.phases import Phase, before
from kvproof.model.reference.blocks import pool
from kvproof.model.reference.transfers.request_ends import leave, producer_done
from kvproof.model.state import (
    ABORTED,
    FAILED,
    LOADED,
    Engine,
    Request,
    State,
    Transfer,
)


def transfer_done(cluster: config.Cluster, state: State, name: str) -> State:
    """All blocks are read or written; the sender may free its blocks. An aborted request of the
    receiver frees its blocks now."""
    transfer = state.transfer(name)
    if transfer is None or transfer.phase not in before(TransferDone):
        raise NotAllowed(f"{name} has no transfer that could end")
    if not transfer.remote:
        raise NotAllowed(f"{name} is not finished on P, so P cannot be notified")
    if transfer.phase != Phase.RELEASING:
        p, _, d, taken = sides(cluster, name)
        sink = memory.copy(p, d, state.engine(p.name), state.engine(d.name), transfer.pairs)
        request = sink.find(taken)
        if request is not None and request.status == ABORTED:
            sink = without_aborted(sink, request)
        elif request is not None:
            sink = sink.with_request(request._replace(status=LOADED))
        state = state.with_engine(sink)
    state = _ended(state, transfer)
    return producer_done(cluster, state, name)


def without_aborted(engine: Engine, request: Request) -> Engine:
    """The engine after the load of an aborted request has ended: the request frees its blocks."""
    return pool.release_all(engine, request).without(request.id)


def _ended(state: State, transfer: Transfer) -> State:
    """The state without a transfer. The record of a reverse transfer stays, because P requests it
    only once."""
    left = turns.over(transfer) if is_reverse(transfer.request) else None
    return state.with_transfer(transfer.request, left)


def load_failed(cluster: config.Cluster, state: State, name: str) -> State:
    """The receiver knows that its load failed: it frees the blocks, or fills them by computing."""
    _, _, sink, taken = sides(cluster, name)
    engine = state.engine(sink.name)
    request = engine.find(taken)
    if request is None:
        return state
    if request.status == ABORTED or cluster.load_failure == "fail":
        return leave(cluster, sink, state, request._replace(status=FAILED))
    return state.with_engine(engine.with_request(restarted(request)))


def restarted(request: Request) -> Request:
    """A request whose load failed and that will compute its prompt itself: the next step starts at
    the first token."""
    return request._replace(status=FAILED, computed=0)


def stray_report(state: State, engine_name: str, name: str) -> State:
    """Process a stray report, which changes nothing."""
    engine = state.engine(engine_name)
    if not disturbances.reported_before(state, engine, name):
        raise NotAllowed(f"no transfer of {name} on {engine_name} was reported before")
    return state
