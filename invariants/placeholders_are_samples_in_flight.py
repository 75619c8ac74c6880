"""With async scheduling a placeholder stands for each token that is sampled and not known yet. A
preempted request lost its placeholders while its output was still to come, which then took one more
than there were: an assertion killed the engine (#48245). After a failed load the computed tokens
were cut and the placeholders were not: the request stayed one token off for ever (#45138)."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.severity import Severity
from kvproof.model.state import COUNTS, SENDING, Engine, Request


def _ahead(engine: Engine, request: Request, drafts: int) -> Iterator[Because]:
    """Of the tokens a request counts on, the newest alone is not computed: each position is sampled
    once. Only a step in flight has computed beyond them, as many `drafts` as it may."""
    pending = engine.placeholders(request.id)
    counted_on = len(request.tokens) + pending
    newest_only = request.computed == counted_on - 1
    beyond = drafts if request.id in dict(engine.step or ()) else 0
    if request.computed > counted_on + beyond or (pending > 0 and not newest_only):
        yield because(
            f"{request.id} on {engine.name} has {len(request.tokens)} known tokens and {pending} "
            "placeholders, of which all but the newest are computed",
            f"{request.computed} tokens are computed",
            engine=engine.name,
            request=request.id,
        )


def check(cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """Each request has as many placeholders as steps in flight sample tokens for it, were all
    drafts right. An engine that died has lost the step in which it died."""
    if engine.dead:
        return
    held = {request.id for request in engine.requests}
    for name in sorted({*held, *dict(engine.pending)}):
        flights = [f for f in engine.flights(name) if f.fate == COUNTS and name in held]
        samples = sum(flight.samples + flight.ahead for flight in flights)
        if engine.placeholders(name) != samples:
            yield because(
                f"{samples} tokens of {name} are sampled by steps in flight on {engine.name}",
                f"it has {engine.placeholders(name)} placeholders",
                engine=engine.name,
                request=name,
            )
    for request in engine.requests:
        if request.status == SENDING:
            continue  # it has ended: the drafts that were right beyond its end are cut off
        yield from _ahead(engine, request, cluster.engine(engine.name).drafts)


INVARIANT = Invariant(
    id="placeholders_are_samples_in_flight",
    name="placeholders are the tokens that steps in flight sample, and no token is computed beyond",
    origin="vllm#48245",
    severity=Severity.CRASH,
    check=EachEngine(check),
    killed_by="late_output_takes_placeholder",
)
