"""The NIXL pull connector: the receiver reads, and the sender keeps its blocks until the read ends.

Sources: `NixlPullConnectorScheduler` and the leases of `NixlBaseConnectorScheduler`.
"""

from collections.abc import Iterator

from kvproof.model import config
from kvproof.model.config.sides import giver, is_reverse
from kvproof.model.environment import pulls
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Event, LeaseExpire, TransferFail, TransferLost
from kvproof.model.phases import Phase, Way, before
from kvproof.model.reference.transfers.request_ends import load_failed, producer_done
from kvproof.model.state import State, Transfer

LEASED = (*before(LeaseExpire, Way.PULL, Way.REVERSE), Phase.READING)
"""Phases in which the sender has a lease. Without a fault, the lease does not end during a read."""


def transfer_failed(cluster: config.Cluster, state: State, name: str) -> State:
    """Process a failed read: by the failure policy the request fails, or computes the prompt
    itself."""
    transfer = state.transfer(name)
    if transfer is None or transfer.phase not in before(TransferFail, Way.PULL, Way.REVERSE):
        raise NotAllowed(f"{name} has no read that could fail")
    if transfer.phase == Phase.REFUSED:
        state = state.with_transfer(name, pulls.turn_over(transfer))
    else:
        state = state.with_transfer(name, transfer.to(Phase.ABANDONED, local=(), pairs=()))
        state = state._replace(failures=state.failures + 1)
    return load_failed(cluster, state, name)


def transfer_lost(state: State, name: str) -> State:
    """Record that the end of a read is never reported."""
    transfer = state.transfer(name)
    if transfer is None or transfer.phase not in before(TransferLost):
        raise NotAllowed(f"{name} has no read that could be lost")
    return state.with_transfer(name, transfer.to(Phase.LOST))


def renewed(transfer: Transfer) -> bool:
    """Whether the lease of a transfer is renewed, so that it does not end: yes during a read
    (vllm#41383)."""
    return transfer.phase == Phase.READING


def late_leases(cluster: config.Cluster, state: State) -> Iterator[Event]:
    """The leases that may end during a read, because they are not renewed."""
    for transfer in state.transfers:
        source, sent = giver(cluster, transfer.request)
        reads = transfer.phase == Phase.READING and not renewed(transfer)
        if reads and state.engine(source.name).find(sent):
            yield LeaseExpire(transfer.request)


def lease_expired(cluster: config.Cluster, state: State, name: str) -> State:
    """End the sender's lease. This is possible only without a read: a receiver renews the lease
    during a read (vllm#41383), or starts a read only where enough of the lease is left
    (vllm#47021)."""
    transfer = state.transfer(name)
    if transfer is None or transfer.phase not in LEASED or renewed(transfer):
        raise NotAllowed(f"{name} has no lease that could end")
    state = producer_done(cluster, state, name)
    if is_reverse(name):
        return (
            state
            if transfer.phase == Phase.READING
            else state.with_transfer(name, pulls.turn_expired(transfer))
        )
    if transfer.phase in (Phase.LOST, Phase.READING):
        return state
    over = transfer.phase == Phase.OFFERED  # otherwise D's read failed
    if over and state.engine(cluster.decode.name).find(name) is not None:
        raise NotAllowed(f"{name} waits on D, which renews its lease")
    state = state.with_transfer(name, None)
    return state.ending(cluster.decode.name, name) if over else state
