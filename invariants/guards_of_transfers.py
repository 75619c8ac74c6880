"""Guards of the connector: what a step may load, and which changes of a transfer are allowed."""

from collections.abc import Iterator

from kvproof.invariants.changes import Scheduled
from kvproof.invariants.check import check
from kvproof.model.because import Judged, because, holds_if, reason
from kvproof.model.config import Cluster
from kvproof.model.config.sides import giver, reverse_of
from kvproof.model.events import LeaseExpire, Schedule, TransferDone, TransferFail, TransferLost
from kvproof.model.needs import Need
from kvproof.model.phases import Phase, allowed, before, way_of
from kvproof.model.severity import Severity
from kvproof.model.state import Engine
from kvproof.model.step import Admission, Step

OPEN = before(Schedule)
"""Phases of a transfer in which the receiver may begin to load."""


def _offered(cluster: Cluster, step: Step, admission: Admission) -> int:
    """Number of tokens that the request can load, counted from its first token."""
    stored = step.before.engine(admission.engine).stored
    own = (len(prefix) for prefix in stored if admission.tokens.startswith(prefix))
    return max((_by_the_other_engine(cluster, step, admission), *own))


def _by_the_other_engine(cluster: Cluster, step: Step, admission: Admission) -> int:
    """The number of tokens that the request can load from the other engine, counted from its first
    token."""
    tokens, name = admission.tokens, admission.request
    if cluster.engine(admission.engine).role != "decode":
        name = reverse_of(cluster.job(name).follows)
    transfer = step.before.transfer(name)
    if transfer is None or transfer.phase not in OPEN:
        return 0
    return len(tokens) if transfer.phase == Phase.AWAITED else transfer.tokens


@check(
    "a request loads only tokens that the other engine, or its store, offers",
    part="connector",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.OFFERED,),
)
def load_is_offered(made: Scheduled, cluster: Cluster) -> Iterator[Judged]:
    """If a request counts tokens as loaded that nothing loads, it reads the old content of the
    blocks at these positions (vllm#37310, vllm#44526)."""
    for admission in made.step.effects.admissions:
        if not admission.external:
            continue
        offered = _offered(cluster, made.step, admission)
        yield holds_if(admission.hit + admission.external <= offered) or because(
            reason(
                "is_offered", "{engine} is offered {offered} tokens of {request}", offered=offered
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


@check(
    "a KV transfer changes its phase only as the table of transitions permits",
    part="connector",
    severity=Severity.HANG,
    needs=(Need.PHASES,),
)
def transfer_follows_the_table(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """A transfer in a wrong phase makes its receiver wait for blocks that never arrive, or its
    sender for a report that is never sent. The permitted changes of phase are in `model.phases`."""
    if any(engine.dead for _, engine in step.touched):
        return
    for name in step.changed_transfers:
        was, now = step.before.phase(name), step.after.phase(name)
        yield holds_if(allowed(way_of(cluster, name), was, step.event, now)) or because(
            reason("phase_was", "the phase of the transfer {name} was {was}", name=name, was=was),
            reason(
                "phase_is", "after {event} it is {now}", event=type(step.event).__name__, now=now
            ),
            engine=cluster.decode.name,
            request=giver(cluster, name).request,
        )


def _accounts(engine: Engine) -> tuple[object, ...]:
    return engine.blocks, engine.free, engine.cached, engine.requests, engine.running


@check(
    "an event of one engine changes no request and no block of another engine",
    part="connector",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.BOTH_ENGINES,),
)
def event_stays_on_its_engine(step: Step) -> Iterator[Judged]:
    """P and D share no state except through a KV transfer. An event of one engine must not change
    the other engine."""
    if isinstance(step.event, TransferDone | TransferFail | TransferLost | LeaseExpire):
        return
    for was, now in zip(step.before.engines, step.after.engines, strict=True):
        if now.name == step.event.engine or (was is not now and (was.dead or now.dead)):
            continue
        yield holds_if(was is now or _accounts(was) == _accounts(now)) or because(
            reason(
                "is_event_of",
                "{event} is an event of {of}",
                event=type(step.event).__name__,
                of=step.event.engine,
            ),
            reason("other_engine_changed", "requests or blocks of {engine} changed"),
            engine=now.name,
        )
