"""A user aborted a request while D read its blocks from P. D freed the blocks during the read, and
the read overwrote the next owner of these blocks (vllm#32255). P has the same duty: its blocks must
stay until D has read them."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachState, Invariant
from kvproof.invariants.parties import WRITTEN, blocks_filled, blocks_sent, giver, taker
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import ABORTED, LOADING, SENDING, State
from kvproof.model.subjects import Subject


def _lost(
    state: State, name: str, request: str, statuses: tuple[str, ...], blocks: set[int]
) -> set[int]:
    """The blocks of these that the request does not hold any more."""
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
        written = blocks_filled(cluster, transfer)
        lost = _lost(state, sink.name, taken, (LOADING, ABORTED), written)
        if lost:
            yield because(
                reason(
                    "still_writes",
                    "a transfer still writes blocks {lost} of {request} on {engine}",
                    lost=sorted(lost),
                ),
                reason("has_freed", "the request has freed them"),
                engine=sink.name,
                request=taken,
            )
        read = blocks_sent(cluster, transfer)
        lost = _lost(state, source.name, sent, (SENDING,), read)
        if lost:
            yield because(
                reason(
                    "still_reads",
                    "a transfer still reads blocks {lost} of {request} on {engine}",
                    lost=sorted(lost),
                ),
                reason("has_freed", "the request has freed them"),
                engine=source.name,
                request=sent,
            )


INVARIANT = Invariant(
    id="nothing_reused_under_transfer",
    name="no block is freed while a transfer reads or writes it",
    origin="vllm#32255",
    severity=Severity.WRONG_TOKENS,
    check=EachState(check),
    needs=(Need.BLOCKS_IN_TRANSFER,),
    subjects=(Subject.IS_FREE, Subject.HOLDERS, Subject.DEFERRED, Subject.REFERENCES),
    killed_by="abort_frees_under_load",
)
