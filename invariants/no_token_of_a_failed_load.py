"""A store failed to load the KV of a request. The next step of the request was already dispatched,
and its token was kept, although it was computed from KV that was never loaded (vllm#45138). The
user receives a wrong token and no error."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, Reason, because, reason
from kvproof.model.config import Cluster
from kvproof.model.events import Complete
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import COUNTS, Engine
from kvproof.model.step import Step


def _emits(engine: Engine, name: str, output: str) -> Iterator[Reason]:
    """The ways in which the request still gets a token that depends on the failed load."""
    request = engine.find(name)
    if request is None:
        return
    if request.output != output:
        yield reason("has_the_token", "it has one token more")
    if any(f.samples and f.fate == COUNTS for f in engine.flights(name)):
        yield reason("later_token_kept", "the token of a later dispatched step will be kept")


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """After a failed load, neither the token of its step nor the token of a later dispatched step
    is kept. With the policy `fail` the request ends; with `recompute` it goes on."""
    event = step.event
    if not isinstance(event, Complete) or not event.failed:
        return
    failed = reason("load_failed", "the load of {request} on {engine} failed")
    before, after = (s.engine(event.engine) for s in (step.before, step.after))
    for how in _emits(after, event.failed, before.request(event.failed).output):
        yield because(failed, how, engine=event.engine, request=event.failed)
    goes_on = after.find(event.failed) is not None
    if goes_on != (cluster.load_failure == "recompute"):
        yield because(
            reason(
                "load_failure_policy",
                "{failed}, and the load-failure policy is {load_failure}",
                failed=failed,
                load_failure=cluster.load_failure,
            ),
            reason("goes_on", "the request goes on")
            if goes_on
            else reason("has_ended", "the request has ended"),
            engine=event.engine,
            request=event.failed,
        )


INVARIANT = Invariant(
    id="no_token_of_a_failed_load",
    name="no token is kept that was computed from a failed load",
    origin="vllm#45138",
    severity=Severity.WRONG_TOKENS,
    check=check,
    needs=(Need.FAILED_LOADS,),
    killed_by="poisoned_step_counts",
)
