"""With async scheduling, a step is dispatched before the step before it has ended. vLLM freed the
blocks behind a window according to the dispatched tokens, while the step in flight still read them
(vllm#47728). The blocks of an ended request were allocated to a load, which wrote them while a step
still wrote them too (vllm#45357)."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import COUNTS, Engine
from kvproof.model.subjects import Subject


def check(cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """A running request holds all blocks that its steps in flight read or write.

    On an engine whose connector fills blocks beside the steps, the blocks of an ended request are
    kept until its steps have ended. Otherwise steps run in order, and the next owner writes after
    them.
    """
    receives = cluster.engine(engine.name).receives
    waiting = {b for _, blocks in engine.deferred for b in blocks}
    for flight in (f for step in engine.steps for f in step):
        runs = flight.fate == COUNTS
        if not runs and not receives:
            continue
        request = engine.find(flight.request)
        held = {b for table in request.tables for b in table} if request else set()
        lost = set(flight.blocks) - (held if runs else held | waiting)
        if lost:
            yield because(
                reason(
                    "step_uses",
                    "a step in flight on {engine} uses blocks {lost} for {request}",
                    lost=sorted(lost),
                ),
                reason("were_freed", "the blocks were freed"),
                engine=engine.name,
                request=flight.request,
            )


INVARIANT = Invariant(
    id="settled_frees",
    name="no block is freed while a dispatched step reads or writes it",
    origin="vllm#47728",
    severity=Severity.WRONG_TOKENS,
    check=EachEngine(check),
    needs=(Need.BLOCKS_IN_FLIGHT,),
    subjects=(Subject.DEFERRED, Subject.FREE, Subject.IS_FREE),
    killed_by="window_freed_in_flight",
)
