"""What must be true while a step is dispatched and its output has not arrived."""

from collections.abc import Iterator

from kvproof.invariants.check import check
from kvproof.model.because import Judged, because, choice, holds_if, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import COUNTS, SENDING, Engine, Request


def _ahead(engine: Engine, request: Request, drafts: int) -> Iterator[Judged]:
    """Judge that only the newest token of a request is not computed, because each position is
    sampled once. While a step is in flight, up to `drafts` more tokens may be computed."""
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
            excuses=[choice("it has ended, and drafts accepted beyond its end are cut off")]
            if request.status == SENDING
            else (),
            engine=engine.name,
            request=request.id,
        )


@check(
    "a request has one placeholder for each token that steps in flight sample, and no token "
    "is computed beyond them",
    origin="vllm#48245",
    severity=Severity.CRASH,
    needs=(Need.SAMPLES_IN_FLIGHT,),
)
def placeholders_are_samples_in_flight(engine: Engine, cluster: Cluster) -> Iterator[Judged]:
    """With async scheduling, a placeholder stands for each token that a step in flight samples. A
    preempted request lost its placeholders while its output was still pending; the output then
    removed one placeholder too many, and an assertion stopped the engine (vllm#48245). After a
    failed load, vLLM reduced the computed tokens but not the placeholders, and the request stayed
    one token off for ever (vllm#45138).

    Each request has as many placeholders as the steps in flight sample tokens for it if all drafts
    are accepted.
    """
    held = {request.id for request in engine.requests}
    for name in sorted({*held, *dict(engine.pending)}):
        flights = [f for f in engine.flights(name) if f.fate == COUNTS and name in held]
        samples = sum(flight.samples + flight.ahead for flight in flights)
        yield holds_if(engine.placeholders(name) == samples) or because(
            reason(
                "steps_sample",
                "steps in flight on {engine} sample {samples} tokens of {request}",
                samples=samples,
            ),
            reason(
                "placeholders", "it has {pending} placeholders", pending=engine.placeholders(name)
            ),
            engine=engine.name,
            request=name,
        )
    for request in engine.requests:
        yield from _ahead(engine, request, cluster.engine(engine.name).drafts)


IN_ORDER = choice("its output counts no more, and whoever gets the blocks next writes after it")


@check(
    "no block is freed while a dispatched step reads or writes it",
    origin="vllm#47728",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.BLOCKS_IN_FLIGHT,),
)
def settled_frees(engine: Engine, cluster: Cluster) -> Iterator[Judged]:
    """With async scheduling, a step is dispatched before the step before it has ended. vLLM freed
    the blocks behind a window according to the dispatched tokens, while the step in flight still
    read them (vllm#47728). The blocks of an ended request were allocated to a load, which wrote
    them while a step still wrote them too (vllm#45357).

    A running request holds all blocks that its steps in flight read or write, and the blocks of an
    ended request are kept until its steps have ended. An engine without a connector is excused from
    the second: its steps run in order, and the next owner writes after them. A connector fills
    blocks beside the steps.
    """
    receives = cluster.engine(engine.name).receives
    waiting = {b for _, blocks in engine.deferred for b in blocks}
    for flight in (f for step in engine.steps for f in step):
        runs = flight.fate == COUNTS
        request = engine.find(flight.request)
        held = {b for table in request.tables for b in table} if request else set()
        lost = set(flight.blocks) - (held if runs else held | waiting)
        yield holds_if(not lost, len(flight.blocks)) or because(
            reason(
                "step_uses",
                "a step in flight on {engine} uses blocks {lost} for {request}",
                lost=sorted(lost),
            ),
            reason("were_freed", "the blocks were freed"),
            excuses=() if runs or receives else [IN_ORDER],
            engine=engine.name,
            request=flight.request,
        )
