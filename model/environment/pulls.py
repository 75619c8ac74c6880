"""Transfers that the receiver reads: what may end, fail, be lost or expire. With follow-up turns, P
asks for the blocks that D keeps of a finished request: a reverse transfer (see `config.sides`).

Sources: `NixlPullConnectorScheduler` with `bidirectional_kv_xfer` (vllm#32553), and the leases of
`NixlBaseConnectorScheduler`.
"""

from collections.abc import Iterator

from kvproof.model import config
from kvproof.model.config.sides import giver, is_reverse, taker
from kvproof.model.events import Event, LeaseExpire, TransferDone, TransferFail, TransferLost
from kvproof.model.phases import Phase, Way, before
from kvproof.model.state import State, Transfer

ENDING = before(TransferDone, Way.PULL, Way.REVERSE)
"""Phases of a transfer that may end at any time."""


def stimuli(cluster: config.Cluster, state: State) -> Iterator[Event]:
    """The possible events of transfers. A lease does not end during a read: D renews it."""
    for transfer in state.transfers:
        name = transfer.request
        if transfer.phase in ENDING:
            yield TransferDone(name)
        if transfer.phase == Phase.READING:
            if state.failures < cluster.failures:
                yield TransferFail(name)
            if cluster.losses and not is_reverse(name):
                yield TransferLost(name)
        if transfer.phase == Phase.REFUSED:
            yield TransferFail(name)
        (source, sent), (sink, taken) = giver(cluster, name), taker(cluster, name)
        sending = state.engine(source.name).find(sent)
        idle = transfer.phase == Phase.OFFERED and not state.engine(sink.name).find(taken)
        over = transfer.phase in (Phase.ABANDONED, Phase.LOST) or (idle and cluster.losses)
        over = over or (is_reverse(name) and transfer.phase == Phase.OFFERED)
        if sending and over:
            yield LeaseExpire(name)


def turn_requested(transfer: Transfer) -> Transfer:
    """The reverse transfer after P requested it. D's lease may have ended. A second request leaves
    the phase unchanged."""
    begun = {Phase.OFFERED: Phase.READING, Phase.EXPIRED: Phase.REFUSED}
    return transfer.to(begun.get(transfer.phase, transfer.phase))


def turn_over(transfer: Transfer) -> Transfer:
    """The reverse transfer after P requested it and D keeps no more blocks."""
    return transfer.to(Phase.CLOSED, remote=(), local=(), pairs=())


def turn_expired(transfer: Transfer) -> Transfer:
    """The reverse transfer after D's lease ended. P may still request it, or has requested it."""
    unrequested = transfer.phase == Phase.OFFERED
    phase = Phase.EXPIRED if unrequested else Phase.CLOSED
    return transfer.to(phase, remote=(), local=(), pairs=())
