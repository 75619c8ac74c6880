"""If a request counts tokens as loaded that nothing loads, it reads the old content of the blocks
at these positions (vllm#37310, vllm#44526)."""

from collections.abc import Iterator

from kvproof.model.because import Because, because, reason
from kvproof.model.config import REVERSE, Cluster
from kvproof.model.events import Schedule
from kvproof.model.needs import Need
from kvproof.model.phases import Phase, before
from kvproof.model.severity import Severity
from kvproof.model.spec.changes import scheduled
from kvproof.model.spec.guard import Guard
from kvproof.model.step import Admission, Step

OPEN = before(Schedule)
"""Phases of a transfer in which the receiver may begin to load."""


def _offered(cluster: Cluster, step: Step, admission: Admission) -> int:
    """Number of tokens that the request can load, counted from its first token."""
    stored = step.before.engine(admission.engine).stored
    own = (len(prefix) for prefix in stored if admission.tokens.startswith(prefix))
    return max((_by_the_other_engine(cluster, step, admission), *own))


def _by_the_other_engine(cluster: Cluster, step: Step, admission: Admission) -> int:
    """The same, of those that the other engine offers."""
    tokens, name = admission.tokens, admission.request
    if cluster.engine(admission.engine).role != "decode":
        name = cluster.job(name).follows + REVERSE
    transfer = step.before.transfer(name)
    if transfer is None or transfer.phase not in OPEN:
        return 0
    return len(tokens) if transfer.phase == Phase.AWAITED else transfer.tokens


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """A request loads no more tokens than the other engine, or its store, offers."""
    engines = scheduled(step)
    if engines is None or not isinstance(step.event, Schedule):
        return
    for admission in step.effects.admissions:
        if not admission.external:
            continue
        offered = _offered(cluster, step, admission)
        if admission.hit + admission.external > offered:
            yield because(
                reason(
                    "is_offered",
                    "{engine} is offered {offered} tokens of {request}",
                    offered=offered,
                ),
                reason(
                    "hits_and_loads",
                    "it hits {hit} tokens and loads {external} more",
                    hit=admission.hit,
                    external=admission.external,
                ),
                engine=admission.engine,
                request=admission.request,
            )


GUARD = Guard(
    id="load_is_offered",
    name="a request loads only tokens that the other engine, or its store, offers",
    part="connector",
    severity=Severity.WRONG_TOKENS,
    check=check,
    needs=(Need.OFFERED,),
)
