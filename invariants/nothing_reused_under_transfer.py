"""A user aborted a request while D read its blocks from P. D freed the blocks during the read, and
the read overwrote the next owner of these blocks (vllm#32255). P has the same duty: its blocks must
stay until D has read them."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachState, Invariant
from kvproof.invariants.parties import giver, taker
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.phases import Phase
from kvproof.model.severity import Severity
from kvproof.model.state import ABORTED, LOADING, NULL, SENDING, Lists, State

WRITTEN = (Phase.REGISTERED, Phase.READING, Phase.OVERDUE)
"""Phases in which the receiver's blocks may be written."""


def _held(
    state: State, name: str, request: str, statuses: tuple[str, ...], lists: Lists
) -> set[int]:
    """Blocks of these lists that the request does not hold any more."""
    blocks = {b for blocks in lists for b in blocks if b != NULL}
    held = state.engine(name).find(request)
    if held is None or held.status not in statuses:
        return blocks
    return blocks - {b for table in held.tables for b in table}


def check(cluster: Cluster, state: State) -> Iterator[Because]:
    """While a transfer reads or writes, both requests keep its blocks. D also keeps the blocks that
    it has registered for a push, because P may write them at any time."""
    for transfer in state.transfers:
        if transfer.phase not in WRITTEN:
            continue
        source, sent = giver(cluster, transfer.request)
        sink, taken = taker(cluster, transfer.request)
        lost = _held(state, sink.name, taken, (LOADING, ABORTED), transfer.local)
        if lost:
            yield because(
                f"a transfer still writes blocks {sorted(lost)} of {taken} on {sink.name}",
                "the request has freed them",
                engine=sink.name,
                request=taken,
            )
        lost = _held(state, source.name, sent, (SENDING,), transfer.remote)
        if lost:
            yield because(
                f"a transfer still reads blocks {sorted(lost)} of {sent} on {source.name}",
                "the request has freed them",
                engine=source.name,
                request=sent,
            )


INVARIANT = Invariant(
    id="nothing_reused_under_transfer",
    name="no block is freed while a transfer reads or writes it",
    origin="vllm#32255",
    severity=Severity.WRONG_TOKENS,
    check=EachState(check),
    killed_by="abort_frees_under_load",
)
