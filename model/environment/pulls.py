"""Transfers that the receiver reads: what may end, fail, be lost or expire.

Sources: `NixlPullConnectorScheduler` and the leases of `NixlBaseConnectorScheduler`.
"""

from collections.abc import Iterator

from kvproof.model import config
from kvproof.model.config.sides import giver, is_reverse, taker
from kvproof.model.events import Event, LeaseExpire, TransferDone, TransferFail, TransferLost
from kvproof.model.phases import Phase, Way, before
from kvproof.model.state import State

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
