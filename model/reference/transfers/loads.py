"""A receiver starts a load, or declines it.

Source: `NixlPullConnectorScheduler.update_state_after_alloc`.
"""

from kvproof.model import config
from kvproof.model.config.sides import is_reverse, sides
from kvproof.model.environment import turns
from kvproof.model.errors import NotAllowed
from kvproof.model.phases import Phase
from kvproof.model.reference.transfers.block_pairs import fresh_lists, paired
from kvproof.model.reference.transfers.offers import OPEN
from kvproof.model.state import LOADING, State


def start_load(cluster: config.Cluster, state: State, name: str) -> State:
    """Start to fill the blocks of a transfer's external tokens. With push, the writes start when P
    has finished."""
    _, _, sink, taken = sides(cluster, name)
    engine = state.engine(sink.name)
    request = engine.request(taken)._replace(status=LOADING)
    transfer = state.transfer(name)
    if transfer is None:
        raise NotAllowed(f"{taken} loads but nothing is offered")
    if is_reverse(name) and transfer.phase != Phase.OFFERED:
        return state.with_engine(engine.with_request(request)).with_transfer(
            name, turns.requested(transfer)
        )
    transfer = transfer._replace(local=fresh_lists(sink, engine, request))
    if transfer.phase == Phase.AWAITED:
        return state.with_engine(engine.with_request(request)).with_transfer(
            name, transfer.to(Phase.REGISTERED)
        )
    transfer = paired(cluster, request, transfer.to(Phase.READING))
    return state.with_engine(engine.with_request(request)).with_transfer(name, transfer)


def declined(cluster: config.Cluster, state: State, name: str) -> State:
    """Decline a transfer: the request was admitted without a load, or ended before it. The sender
    is only notified."""
    transfer = state.transfer(name)
    if transfer is not None and transfer.phase == Phase.EXPIRED:
        return state.with_transfer(name, turns.over(transfer))
    if transfer is None or transfer.phase not in OPEN:
        return state
    if cluster.pushes:
        return state.with_transfer(name, transfer.to(Phase.RELEASING))
    _, _, sink, taken = sides(cluster, name)
    engine = state.engine(sink.name)
    request = engine.find(taken)
    if request is not None and request.tables:
        local = fresh_lists(sink, engine, request)
        transfer = paired(cluster, request, transfer._replace(local=local))
    return state.with_transfer(name, transfer.to(Phase.RELEASING))
