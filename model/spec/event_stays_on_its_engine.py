"""P and D share no state except through a KV transfer. An event of one engine must not change the
other engine."""

from collections.abc import Iterator

from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.events import LeaseExpire, TransferDone, TransferFail, TransferLost
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.spec.changes import alive
from kvproof.model.spec.guard import Guard
from kvproof.model.state import Engine
from kvproof.model.step import Step


def _accounts(engine: Engine) -> tuple[object, ...]:
    return engine.blocks, engine.free, engine.cached, engine.requests, engine.running


def check(_cluster: Cluster, step: Step) -> Iterator[Because]:
    """An event of one engine changes no request and no block of another engine."""
    if isinstance(step.event, TransferDone | TransferFail | TransferLost | LeaseExpire):
        return
    for before, after in alive(step):
        if after.name != step.event.engine and _accounts(before) != _accounts(after):
            yield because(
                reason(
                    "is_event_of",
                    "{event} is an event of {of}",
                    event=type(step.event).__name__,
                    of=step.event.engine,
                ),
                reason("other_engine_changed", "requests or blocks of {engine} changed"),
                engine=after.name,
            )


GUARD = Guard(
    id="event_stays_on_its_engine",
    name="an event of one engine changes no request and no block of another engine",
    part="connector",
    severity=Severity.WRONG_TOKENS,
    check=check,
    needs=(Need.BOTH_ENGINES,),
)
