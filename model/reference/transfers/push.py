"""The NIXL push connector: D registers its blocks with P, and P writes to them.

The router sends a request to both engines at once; P gets it first. P writes when it has finished
the request and D has registered its blocks. Both sides learn of the write's end. Until then D keeps
its registered blocks, even if its user aborts, because P may write to them at any time. A posted
write continues after P's lease has ended, so P keeps the blocks that it writes from. A lease may
end while D waits, because D's heartbeats name an id that P does not know (vllm#53095).

Where no write will come (P has no such request any more, or its write failed), D stops waiting
after a deadline. `LeaseExpire` represents both: the end of P's lease and D's deadline. Not
modelled: an immediate report of a failure to D.

Sources: `NixlPushConnectorScheduler`, `NixlPushConnectorWorker`.
"""

from kvproof.model.config import Cluster
from kvproof.model.environment import pushes
from kvproof.model.errors import NotAllowed
from kvproof.model.phases import Phase
from kvproof.model.reference.transfers.loads import paired
from kvproof.model.reference.transfers.request_ends import load_failed, producer_done
from kvproof.model.state import State, Transfer


def arrived(cluster: Cluster, state: State, name: str) -> State:
    """A request reaches D, before or after P has finished it."""
    if not pushes.sent(cluster, state, name):
        raise NotAllowed(f"{name} reaches D, but P does not have it")
    if state.transfer(name) is None:
        return state.with_transfer(name, Transfer(name, Phase.AWAITED, 0, ()))
    return state


def settled(cluster: Cluster, state: State) -> State:
    """Apply the consequences of an event: P starts to write finished and registered blocks, and
    transfers end where the other side has no such request."""
    for transfer in state.transfers:
        name = transfer.request
        if transfer.phase == Phase.REGISTERED and transfer.remote:
            request = state.engine(cluster.decode.name).request(name)
            writing = paired(cluster, request, transfer)
            state = state.with_transfer(name, writing.to(Phase.READING))
        left = transfer.phase == Phase.AWAITED and not state.engine(cluster.decode.name).find(name)
        on_p = pushes.on_prefill(cluster, state, name)
        if left or (transfer.phase == Phase.RELEASING and not on_p):
            state = state.with_transfer(name, None)
    return state


def transfer_failed(cluster: Cluster, state: State, name: str) -> State:  # noqa: ARG001
    """Process a failed write of P. Only P knows of the failure, and it does not retry."""
    transfer = state.transfer(name)
    if transfer is None or transfer.phase not in pushes.WRITING:
        raise NotAllowed(f"{name} has no write that could fail")
    failed = transfer.to(Phase.ABANDONED, local=(), pairs=())
    return state.with_transfer(name, failed)._replace(failures=state.failures + 1)


def lease_expired(cluster: Cluster, state: State, name: str) -> State:
    """End a lease or a deadline. A write in progress keeps P's blocks."""
    transfer = state.transfer(name)
    if transfer is None or not pushes.may_expire(cluster, state, transfer):
        raise NotAllowed(f"{name} has no lease or deadline that could end")
    writes = transfer.phase == Phase.READING
    if writes:
        return state.with_transfer(name, transfer.to(Phase.OVERDUE))
    state = producer_done(cluster, state, name)
    if transfer.phase == Phase.OFFERED:
        if state.engine(cluster.decode.name).find(name):
            return state.with_transfer(name, Transfer(name, Phase.AWAITED, 0, ()))
        return state.with_transfer(name, None).ending(cluster.decode.name, name)
    return deadline_ended(cluster, state, name)


def deadline_ended(cluster: Cluster, state: State, name: str) -> State:
    """D's deadline for a write has ended: D withdraws its registration from P, and its load has
    failed."""
    return load_failed(cluster, state.with_transfer(name, None), name)
