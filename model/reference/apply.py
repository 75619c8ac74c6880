"""The whole machine: the initial state, the stimuli of the environment, and their effects."""

from collections.abc import Iterator

from msgspec.structs import replace

from kvproof.model import capacity, config, ghost
from kvproof.model.arithmetic import counts
from kvproof.model.config.sides import incoming
from kvproof.model.environment import arrivals
from kvproof.model.environment import stimuli as environment
from kvproof.model.errors import NotAllowed
from kvproof.model.events import (
    Abort,
    Complete,
    Continue,
    Event,
    Evict,
    LeaseExpire,
    ResetPrefixCache,
    ResetRunning,
    Schedule,
    StrayReport,
    Submit,
    TransferDone,
    TransferFail,
    TransferLost,
)
from kvproof.model.phases import Phase
from kvproof.model.reference import in_flight
from kvproof.model.reference.blocks import pool
from kvproof.model.reference.blocks.kv_event_queue import reported
from kvproof.model.reference.scheduling import preemption, scheduler, sessions, step_output
from kvproof.model.reference.scheduling.greedy import Greedy
from kvproof.model.reference.transfers import pull, push, request_ends
from kvproof.model.reference.transfers.loads import declined
from kvproof.model.reference.transfers.offers import truncated
from kvproof.model.reference.transfers.request_ends import leave
from kvproof.model.state import (
    ABORTED,
    SENDING,
    State,
)
from kvproof.model.step import Effects, Step


def stimuli(cluster: config.Cluster, state: State) -> Iterator[Event]:
    """The events that may come next: those of the environment, and the end of a lease that D should
    have renewed."""
    yield from environment.stimuli(cluster, state)
    if not cluster.pushes and environment.is_settled(state):
        yield from pull.late_leases(cluster, state)


def _submit(cluster: config.Cluster, state: State, event: Submit) -> State:
    """A job arrives at its engine. A single engine rejects a job that its pool can never hold; P
    and D reject nothing in this model."""
    cfg = cluster.engine(event.engine)
    engine = state.engine(event.engine)
    if engine.find(event.request) or (event.engine, event.request) in state.ended:
        raise NotAllowed(f"{event.request} was submitted to {event.engine} before")
    if not arrivals.may_come(cluster, state, cluster.job(event.request)):
        raise NotAllowed(f"{event.request} follows a request that is not answered")
    if cfg.role == "decode" and cluster.pushes:
        state = push.arrived(cluster, state, event.request)
    elif cfg.role == "decode" and state.phase(event.request) != Phase.OFFERED:
        raise NotAllowed(f"{event.request} reaches D and P offers nothing of it")
    request = arrivals.arrival(cluster, event.request, event.engine)
    limit = counts.output_tokens(cluster.job(event.request).max_tokens, cfg.role == "prefill")
    request = request._replace(max_tokens=int(limit))
    if not cfg.connected and not capacity.can_hold(cfg, request):
        return state.ending(event.engine, event.request)
    return state.with_engine(engine.with_request(truncated(cfg, request)))


def _abort(cluster: config.Cluster, state: State, event: Abort) -> State:
    request = state.engine(event.engine).request(event.request)
    if request.status in (SENDING, ABORTED):
        raise NotAllowed(f"{event.request} is {request.status} and is aborted")
    return leave(cluster, cluster.engine(event.engine), state, request)


def _evict(_cluster: config.Cluster, state: State, event: Evict) -> State:
    engine = state.engine(event.engine)
    if event.block not in engine.free:
        raise NotAllowed(f"block {event.block} is evicted and is not free")
    return state.with_engine(pool.unregister(engine, event.block))


def _complete(cluster: config.Cluster, state: State, event: Complete) -> State:
    if event.failed:
        state = request_ends.taken_back(cluster, state, event.engine, event.failed)
    if cluster.engine(event.engine).overlaps:
        state = step_output.complete_overlapping(
            cluster, state, event.engine, accepted=event.accepted
        )
    else:
        state = step_output.complete(cluster, state, event.engine, accepted=event.accepted)
    if event.failed:
        state = request_ends.end_failed(cluster, state, event.engine, event.failed)
    return state


def _schedule(
    cluster: config.Cluster, state: State, event: Schedule
) -> tuple[Event, State, Effects]:
    in_flight.check_room(cluster.engine(event.engine), state.engine(event.engine))
    work = Greedy(cluster, state, event.engine)
    if event.chose is None:
        work.choose()
    else:
        for choice in event.chose:
            scheduler.take_choice(work, choice)
    after, effects = scheduler.dispatch(work)
    for admission in work.admissions:
        if not admission.external:
            name = incoming(cluster, event.engine, admission.request)
            after = declined(cluster, after, name)
    return replace(event, chose=tuple(work.chose)), after, effects


def _after(cluster: config.Cluster, state: State, event: Event) -> State:
    """The state after any event but a `Schedule`. The functions are called by their names, so that
    a fault can replace each of them: a table of functions would keep the right ones."""
    match event:
        case Submit():
            return _submit(cluster, state, event)
        case Abort():
            return _abort(cluster, state, event)
        case Evict():
            return _evict(cluster, state, event)
        case ResetPrefixCache():
            return preemption.of_idle_pool(cluster, state, event)
        case ResetRunning():
            return preemption.with_preemption(cluster, state, event)
        case Complete():
            return _complete(cluster, state, event)
        case TransferDone():
            return request_ends.transfer_done(cluster, state, event.request)
        case TransferFail():
            failed = push.transfer_failed if cluster.pushes else pull.transfer_failed
            return failed(cluster, state, event.request)
        case TransferLost():
            return pull.transfer_lost(state, event.request)
        case Continue():
            return sessions.go_on(cluster, state, event.engine, event.request)
        case LeaseExpire():
            expired = push.lease_expired if cluster.pushes else pull.lease_expired
            return expired(cluster, state, event.request)
        case StrayReport():
            return request_ends.stray_report(state, event.engine, event.request)
    raise NotAllowed(f"{type(event).__name__} is no event of the model")


def apply(cluster: config.Cluster, state: State, event: Event) -> Step:
    """Apply one event. A `Schedule` without choices chooses greedily; with choices, each choice
    must be allowed.

    Raises NotAllowed where the spec forbids the event in this state.
    """
    if isinstance(event, Schedule):
        resolved, after, effects = _schedule(cluster, state, event)
    else:
        resolved, effects = event, Effects()
        after = _after(cluster, state, event)
    if isinstance(event, ResetPrefixCache | ResetRunning) and after is not state:
        effects = Effects(resets=(event.engine,))
    if isinstance(event, Complete) and cluster.engine(event.engine).overlaps:
        before, ran = state.engine(event.engine), after.engine(event.engine)
        ran, reads = step_output.carried_out(cluster.engine(event.engine), before, ran)
        after, effects = after.with_engine(ran), Effects(reads)
    if cluster.pushes:
        after = push.settled(cluster, after)
    engines = []
    for old, new in zip(state.engines, after.engines, strict=True):
        if new is not old:
            new, reports = reported(new)
            effects = effects._replace(reports=(*effects.reports, *reports))
        engines.append(new)
    step = Step(state, resolved, effects, after._replace(engines=tuple(engines)))
    return ghost.remembered(cluster, step)
