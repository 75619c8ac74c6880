"""The NIXL push connector: D registers its blocks with P, and P writes into them.

The request reaches both engines at once, P first. P writes when it has finished and knows D's
blocks, whichever comes last; the write's completion tells both. Until then D keeps what it has
registered, whatever its user does, for P may write it at any time. A write that was posted goes on
after P's lease has ended, so P keeps what is being written out. D's heartbeats are not relied on:
a lease may end while D waits (they name an id that P does not know, vllm#53095).

Where no write will come - P has no such request any more, or its write has failed - D gives up
after a bounded wait. `LeaseExpire` stands for both waits: P's for D, and D's for P. That D is told
of a failure at once is left open.

Sources: `NixlPushConnectorScheduler`, `NixlPushConnectorWorker`.
"""

from collections.abc import Iterator

from kvproof.model.config import Cluster
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Event, LeaseExpire, TransferDone, TransferFail
from kvproof.model.phases import Phase, Way, before
from kvproof.model.reference.rules import Rules
from kvproof.model.reference.transfers.block_pairs import paired
from kvproof.model.reference.transfers.request_ends import producer_done
from kvproof.model.reference.transfers.transfer_ends import load_failed
from kvproof.model.state import PREEMPTED, WAITING, State, Transfer

WRITING = before(TransferFail, Way.PUSH)
"""Phases in which P writes into D's blocks."""


def on_prefill(cluster: Cluster, state: State, name: str) -> bool:
    """Whether P has a request, finished or not."""
    return state.engine(cluster.prefill.name).find(name) is not None


def sent(cluster: Cluster, state: State, name: str) -> bool:
    """Whether D may get a request: its router has sent it to P, which has it still."""
    ended = (cluster.decode.name, name) in state.ended
    return not ended and on_prefill(cluster, state, name)


def arrived(cluster: Cluster, state: State, name: str) -> State:
    """A request reaches D, before P has finished it or after."""
    if not sent(cluster, state, name):
        raise NotAllowed(f"{name} reaches D, and P does not have it")
    if state.transfer(name) is None:
        return state.with_transfer(name, Transfer(name, Phase.AWAITED, 0, ()))
    return state


def settled(cluster: Cluster, state: State, rules: Rules) -> State:
    """What follows by itself: P writes what is finished and registered, and nobody is notified who
    is not there."""
    for transfer in state.transfers:
        name = transfer.request
        if transfer.phase == Phase.REGISTERED and transfer.remote:
            request = state.engine(cluster.decode.name).request(name)
            writing = paired(cluster, request, transfer, rules)
            state = state.with_transfer(name, writing.to(Phase.READING))
        left = transfer.phase == Phase.AWAITED and not state.engine(cluster.decode.name).find(name)
        if left or (transfer.phase == Phase.RELEASING and not on_prefill(cluster, state, name)):
            state = state.with_transfer(name, None)
    return state


def _kept_from_others(cluster: Cluster, state: State) -> bool:
    """Whether somebody waits on P, maybe for what it keeps. D may be waiting for him in turn: D
    admits who has not been computed yet, and has no room left for those who have."""
    waiting = (WAITING, PREEMPTED)
    return any(r.status in waiting for r in state.engine(cluster.prefill.name).requests)


def may_expire(cluster: Cluster, state: State, transfer: Transfer) -> bool:
    """Whether somebody's wait may be over now: P's for D, or D's for a write that cannot come."""
    name = transfer.request
    if transfer.phase == Phase.OFFERED:
        gone = (cluster.decode.name, name) in state.ended
        return cluster.losses or gone or _kept_from_others(cluster, state)
    if transfer.phase == Phase.READING:
        return cluster.losses
    if transfer.phase == Phase.REGISTERED:
        return not on_prefill(cluster, state, name)
    return transfer.phase == Phase.ABANDONED


def stimuli(cluster: Cluster, state: State, rules: Rules) -> Iterator[Event]:  # noqa: ARG001
    """What may happen to transfers."""
    for transfer in state.transfers:
        name = transfer.request
        if transfer.phase in WRITING or (transfer.phase == Phase.RELEASING and transfer.remote):
            yield TransferDone(name)
        if transfer.phase in WRITING and state.failures < cluster.failures:
            yield TransferFail(name)
        if may_expire(cluster, state, transfer):
            yield LeaseExpire(name)


def transfer_failed(cluster: Cluster, state: State, name: str, rules: Rules) -> State:  # noqa: ARG001
    """P's write has failed, and only P knows: it does not try again."""
    transfer = state.transfer(name)
    if transfer is None or transfer.phase not in WRITING:
        raise NotAllowed(f"{name} has no write that could fail")
    failed = transfer.to(Phase.ABANDONED, local=(), pairs=())
    return state.with_transfer(name, failed)._replace(failures=state.failures + 1)


def lease_expired(cluster: Cluster, state: State, name: str, rules: Rules) -> State:
    """Whoever waits, waits no longer. A write that goes on holds P's blocks."""
    transfer = state.transfer(name)
    if transfer is None or not may_expire(cluster, state, transfer):
        raise NotAllowed(f"nobody's wait for {name} could be over")
    writes = transfer.phase == Phase.READING
    if rules.frees_at_lease_end(writes):
        state = producer_done(cluster, state, name, rules)
    if writes:
        return state.with_transfer(name, transfer.to(Phase.OVERDUE))
    if transfer.phase == Phase.OFFERED:
        if state.engine(cluster.decode.name).find(name):
            return state.with_transfer(name, Transfer(name, Phase.AWAITED, 0, ()))
        return state.with_transfer(name, None).ending(cluster.decode.name, name)
    state = rules.drop_registration(state, name)
    waits = state.transfer(name) is not None
    return state if waits else load_failed(cluster, state, name, rules)
