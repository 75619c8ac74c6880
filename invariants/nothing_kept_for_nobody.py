"""P keeps the blocks of a prompt until D has loaded them. If D has the whole prompt in its own
cache, or if the user aborts the request, D loads nothing and must report this to P. In vLLM 0.32.0
some such requests are not reported, and each of them holds its blocks on P until the lease expires.
A repeated prompt is such a request."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachState, Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.phases import Phase
from kvproof.model.severity import Severity
from kvproof.model.state import State
from kvproof.model.subjects import Subject


def check(cluster: Cluster, state: State) -> Iterator[Because]:
    """For every transfer that P offers, D has neither started the request without loading nor ended
    it."""
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
                reason("runs", "{engine} runs {request} and loads nothing")
                if served
                else reason("has_ended", "{engine} has ended {request} and loads nothing"),
                reason(
                    "no_report_and_keeps",
                    "D sent no report, and P keeps blocks {blocks} for it",
                    blocks=transfer.remote,
                ),
                engine=decode.name,
                request=transfer.request,
            )


INVARIANT = Invariant(
    id="nothing_kept_for_nobody",
    name="P keeps blocks for D only while D may still load them",
    origin="kvproof, vLLM 0.32.0",
    severity=Severity.LEAK,
    check=EachState(check),
    needs=(Need.BOTH_ENGINES,),
    subjects=(Subject.READ, Subject.PRESENT, Subject.FREE),
    killed_by="unneeded_prefill_is_not_reported",
)
