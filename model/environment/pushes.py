"""Transfers that the sender writes: what may end, fail or expire.

The router sends a request to both engines at once; P gets it first. `LeaseExpire` represents the
end of P's lease and D's deadline for a write that cannot come.

Sources: `NixlPushConnectorScheduler`, `NixlPushConnectorWorker`.
"""

from collections.abc import Iterator

from kvproof.model.config import Cluster
from kvproof.model.events import Event, LeaseExpire, TransferDone, TransferFail
from kvproof.model.phases import Phase, Way, before
from kvproof.model.state import PREEMPTED, WAITING, State, Transfer

WRITING = before(TransferFail, Way.PUSH)
"""Phases in which P writes to D's blocks."""


def on_prefill(cluster: Cluster, state: State, name: str) -> bool:
    """Whether P has a request, finished or not."""
    return state.engine(cluster.prefill.name).find(name) is not None


def sent(cluster: Cluster, state: State, name: str) -> bool:
    """Whether D may get a request: the router has sent it to P, and P still has it."""
    ended = (cluster.decode.name, name) in state.ended
    return not ended and on_prefill(cluster, state, name)


def _kept_from_others(cluster: Cluster, state: State) -> bool:
    """Whether some request waits on P, perhaps for the blocks that P keeps. D may wait for that
    request: D admits requests that P has not computed yet, and may have no room left for computed
    ones."""
    waiting = (WAITING, PREEMPTED)
    return any(r.status in waiting for r in state.engine(cluster.prefill.name).requests)


def may_expire(cluster: Cluster, state: State, transfer: Transfer) -> bool:
    """Whether a wait may end now: P's lease, or D's deadline for a write that cannot come."""
    name = transfer.request
    if transfer.phase == Phase.OFFERED:
        gone = (cluster.decode.name, name) in state.ended
        return cluster.losses or gone or _kept_from_others(cluster, state)
    if transfer.phase == Phase.READING:
        return cluster.losses
    if transfer.phase == Phase.REGISTERED:
        return not on_prefill(cluster, state, name)
    return transfer.phase == Phase.ABANDONED


def stimuli(cluster: Cluster, state: State) -> Iterator[Event]:
    """The possible events of transfers."""
    for transfer in state.transfers:
        name = transfer.request
        if transfer.phase in WRITING or (transfer.phase == Phase.RELEASING and transfer.remote):
            yield TransferDone(name)
        if transfer.phase in WRITING and state.failures < cluster.failures:
            yield TransferFail(name)
        if may_expire(cluster, state, transfer):
            yield LeaseExpire(name)
