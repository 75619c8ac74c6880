"""Fail closed. A store could not bring what a step had loaded; the step behind it was dispatched
already, and its token was kept, though it was computed on KV that was never there (#45138)."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.events import Complete
from kvproof.model.severity import Severity
from kvproof.model.state import COUNTS, Engine
from kvproof.model.step import Step


def _emits(engine: Engine, name: str, output: str) -> Iterator[str]:
    """How a request still gets a token that its load had a part in."""
    request = engine.find(name)
    if request is None:
        return
    if request.output != output:
        yield "it has one more token"
    if any(f.samples and f.fate == COUNTS for f in engine.flights(name)):
        yield "the token of a step dispatched behind it will be kept"


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """When a load is known to have failed, neither the token of its step nor one of the steps
    dispatched since is kept. By policy the request has ended, and otherwise it has not."""
    event = step.event
    if not isinstance(event, Complete) or not event.failed:
        return
    failed = f"the load of {event.failed} on {event.engine} has failed"
    before, after = (s.engine(event.engine) for s in (step.before, step.after))
    for how in _emits(after, event.failed, before.request(event.failed).output):
        yield because(failed, how, engine=event.engine, request=event.failed)
    goes_on = after.find(event.failed) is not None
    if goes_on != (cluster.load_failure == "recompute"):
        yield because(
            f"{failed}, and the policy is {cluster.load_failure}",
            ("it goes on" if goes_on else "it has ended"),
            engine=event.engine,
            request=event.failed,
        )


INVARIANT = Invariant(
    id="no_token_of_a_failed_load",
    name="no token is kept that was computed on a load that has failed",
    origin="vllm#45138",
    severity=Severity.WRONG_TOKENS,
    check=check,
    killed_by="poisoned_step_counts",
)
