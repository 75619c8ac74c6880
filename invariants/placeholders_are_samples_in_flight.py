"""With async scheduling, a placeholder stands for each token that a step in flight samples. A
preempted request lost its placeholders while its output was still pending; the output then removed
one placeholder too many, and an assertion stopped the engine (vllm#48245). After a failed load,
vLLM reduced the computed tokens but not the placeholders, and the request stayed one token off for
ever (vllm#45138)."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import COUNTS, SENDING, Engine, Request
from kvproof.model.subjects import Subject


def _ahead(engine: Engine, request: Request, drafts: int) -> Iterator[Because]:
    """Only the newest token of a request is not computed: each position is sampled once. While a
    step is in flight, up to `drafts` more tokens may be computed."""
    pending = engine.placeholders(request.id)
    counted_on = len(request.tokens) + pending
    newest_only = request.computed == counted_on - 1
    beyond = drafts if request.id in dict(engine.step or ()) else 0
    if request.computed > counted_on + beyond or (pending > 0 and not newest_only):
        yield because(
            reason(
                "known_and_pending",
                "{request} on {engine} has {known} known tokens and {pending} "
                "placeholders, and all of them except the newest are computed",
                known=len(request.tokens),
                pending=pending,
            ),
            reason(
                "computed_tokens", "it has {computed} computed tokens", computed=request.computed
            ),
            engine=engine.name,
            request=request.id,
        )


def check(cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """Each request has as many placeholders as the steps in flight sample tokens for it if all
    drafts are accepted."""
    held = {request.id for request in engine.requests}
    for name in sorted({*held, *dict(engine.pending)}):
        flights = [f for f in engine.flights(name) if f.fate == COUNTS and name in held]
        samples = sum(flight.samples + flight.ahead for flight in flights)
        if engine.placeholders(name) != samples:
            yield because(
                reason(
                    "steps_sample",
                    "steps in flight on {engine} sample {samples} tokens of {request}",
                    samples=samples,
                ),
                reason(
                    "placeholders",
                    "it has {pending} placeholders",
                    pending=engine.placeholders(name),
                ),
                engine=engine.name,
                request=name,
            )
    for request in engine.requests:
        if request.status == SENDING:
            continue  # it has ended, and the accepted drafts beyond its end are cut off
        yield from _ahead(engine, request, cluster.engine(engine.name).drafts)


INVARIANT = Invariant(
    id="placeholders_are_samples_in_flight",
    name=(
        "a request has one placeholder for each token that steps in flight sample, and no token "
        "is computed beyond them"
    ),
    origin="vllm#48245",
    severity=Severity.CRASH,
    check=EachEngine(check),
    needs=(Need.SAMPLES_IN_FLIGHT,),
    subjects=(Subject.PLACEHOLDERS, Subject.OUTPUTS),
    killed_by="late_output_takes_placeholder",
)
