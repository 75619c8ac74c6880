"""D has all of a prompt in its cache, or its user leaves before it is served: P, which keeps the
blocks for D, must hear of it. Else each such request takes its blocks from P until a lease ends,
and a repeated prompt is such a request."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachState, Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.phases import Phase
from kvproof.model.severity import Severity
from kvproof.model.state import State


def check(cluster: Cluster, state: State) -> Iterator[Because]:
    """What P offers, a living D has not begun to serve without it, and has not ended."""
    decode = state.engine(cluster.decode.name)
    if decode.dead:
        return
    for transfer in state.transfers:
        if transfer.phase != Phase.OFFERED:
            continue
        request = decode.find(transfer.request)
        served = request is not None and bool(request.tables)
        if served or (decode.name, transfer.request) in state.ended:
            yield because(
                f"{decode.name} {'serves' if served else 'has ended'} {transfer.request} "
                "and loads nothing",
                f"P keeps blocks {[list(blocks) for blocks in transfer.remote]} for it, untold",
                engine=decode.name,
                request=transfer.request,
            )


INVARIANT = Invariant(
    id="nothing_kept_for_nobody",
    name="P keeps blocks for D only while D may still load them",
    origin="kvproof, vLLM 0.32.0",
    severity=Severity.LEAK,
    check=EachState(check),
    killed_by="unneeded_prefill_is_not_reported",
)
