"""The whole machine: the initial state, the stimuli of the environment, and their effects."""

from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from kvproof.model import config, ghost
from kvproof.model.arithmetic import counts
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
from kvproof.model.reference.blocks import capacity, pool
from kvproof.model.reference.blocks.kv_event_queue import reported
from kvproof.model.reference.features import drafting, follow_up_turns, in_flight
from kvproof.model.reference.scheduling import overlap, resets, scheduler, sessions, step_output
from kvproof.model.reference.scheduling.greedy import Greedy
from kvproof.model.reference.transfers import failed_load, pull, push, transfer_ends
from kvproof.model.reference.transfers.loads import declined
from kvproof.model.reference.transfers.offers import truncated
from kvproof.model.reference.transfers.request_ends import leave
from kvproof.model.state import (
    ABORTED,
    LOADING,
    MISQUEUED,
    PAUSED,
    SENDING,
    WAITING,
    Block,
    Engine,
    Request,
    State,
)
from kvproof.model.step import Effects, Step

IDLE = (LOADING, SENDING, ABORTED, PAUSED, MISQUEUED)
"""Statuses of requests that no step can schedule."""


def initial(cluster: config.Cluster) -> State:
    """All engines idle, all blocks free, nothing cached."""
    engines = tuple(
        Engine(
            name=e.name,
            blocks=(Block(),) * e.num_blocks,
            free=tuple(range(1, e.num_blocks)),
            memory=(None,) * e.num_blocks,
            reports=() if e.kv_events else None,
        )
        for e in cluster.engines
    )
    return State(engines)


def arrival(cluster: config.Cluster, name: str, engine: str) -> Request:
    """The request of a job when it arrives at an engine. P samples only one token; D computes the
    answer."""
    job = cluster.job(name)
    role = cluster.engine(engine).role
    route = {"both": "local", "prefill": "to_decode", "decode": "from_prefill"}[role]
    limit = int(counts.output_tokens(job.max_tokens, role == "prefill"))
    prompt = job.keyed_prompt
    return Request(name, WAITING, prompt, len(prompt), limit, route=route, embeds=job.embeds)


def stimuli(cluster: config.Cluster, state: State) -> Iterator[Event]:
    """The events that the environment may send next. The machine makes the scheduler's choices.

    Where steps do not overlap, a step's output arrives before any other event. Events of the other
    engine commute with it, so one order represents all orders.
    """
    for engine in state.engines:
        if engine.step is not None and not engine.dead:
            for accepted in drafting.verdicts(engine):
                yield Complete(engine.name, accepted)
            for failed in failed_load.possible(cluster, state, engine):
                yield Complete(engine.name, failed=failed)
            return
    if any(e.dead for e in state.engines):
        return
    for engine in state.engines:
        if engine.steps:
            for accepted in drafting.verdicts(engine):
                yield Complete(engine.name, accepted)
            for failed in failed_load.possible(cluster, state, engine):
                yield Complete(engine.name, failed=failed)
    yield from _arrivals(cluster, state)
    for engine in state.engines:
        room = len(engine.steps) < cluster.engine(engine.name).steps_in_flight
        if room and any(r.status not in IDLE for r in engine.requests):
            yield Schedule(engine.name)
    yield from _moves(cluster).stimuli(cluster, state)
    yield from _disturbances(cluster, state)


def _arrivals(cluster: config.Cluster, state: State) -> Iterator[Event]:
    first, last = cluster.prefill.name, cluster.decode.name
    for job in cluster.jobs:
        new = (first, job.name) not in state.ended and not state.engine(first).find(job.name)
        if new and follow_up_turns.may_come(cluster, state, job):
            yield Submit(first, job.name)
        ready = state.phase(job.name) == Phase.OFFERED
        if cluster.pushes:
            ready = push.sent(cluster, state, job.name)
        if ready and not state.engine(last).find(job.name):
            yield Submit(last, job.name)
    for engine in state.engines if cluster.sessions else ():
        for request in engine.requests:
            if request.status == PAUSED:
                yield Continue(engine.name, request.id)


def _disturbances(cluster: config.Cluster, state: State) -> Iterator[Event]:
    for engine in state.engines:
        if cluster.aborts:
            for request in engine.requests:
                if request.status not in (SENDING, ABORTED):
                    yield Abort(engine.name, request.id)
        if cluster.stray:
            for job in cluster.jobs:
                if transfer_ends.reported_before(state, engine, job.name):
                    yield StrayReport(engine.name, job.name)
        if cluster.evictions:
            for block in engine.free:
                if engine.blocks[block].key is not None:
                    yield Evict(engine.name, block)
        if cluster.resets_any_time:
            yield from resets.possible(cluster, engine)
        elif cluster.resets and engine.cached and not engine.requests and not engine.deferred:
            yield ResetPrefixCache(engine.name)


def _submit(cluster: config.Cluster, state: State, event: Submit) -> State:
    """A job arrives at its engine. A single engine rejects a job that its pool can never hold; P
    and D reject nothing in this model."""
    cfg = cluster.engine(event.engine)
    engine = state.engine(event.engine)
    if engine.find(event.request) or (event.engine, event.request) in state.ended:
        raise NotAllowed(f"{event.request} was submitted to {event.engine} before")
    if not follow_up_turns.may_come(cluster, state, cluster.job(event.request)):
        raise NotAllowed(f"{event.request} follows a request that is not answered")
    if cfg.role == "decode" and cluster.pushes:
        state = push.arrived(cluster, state, event.request)
    elif cfg.role == "decode" and state.phase(event.request) != Phase.OFFERED:
        raise NotAllowed(f"{event.request} reaches D and P offers nothing of it")
    request = arrival(cluster, event.request, event.engine)
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
        state = failed_load.taken_back(cluster, state, event.engine, event.failed)
    if cluster.engine(event.engine).overlaps:
        state = overlap.complete(cluster, state, event.engine, accepted=event.accepted)
    else:
        state = step_output.complete(cluster, state, event.engine, accepted=event.accepted)
    if event.failed:
        state = failed_load.ended(cluster, state, event.engine, event.failed)
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
            name = follow_up_turns.incoming(cluster, event.engine, admission.request)
            after = declined(cluster, after, name)
    return replace(event, chose=tuple(work.chose)), after, effects


def _moves(cluster: config.Cluster) -> Any:
    """The module with the transfers of this cluster: pull or push."""
    return push if cluster.pushes else pull


SIMPLE: dict[type, Callable[[config.Cluster, State, Any], State]] = {
    Submit: _submit,
    Abort: _abort,
    Evict: _evict,
    ResetPrefixCache: resets.of_idle_pool,
    ResetRunning: resets.with_preemption,
    Complete: _complete,
    TransferDone: lambda c, s, e: transfer_ends.transfer_done(c, s, e.request),
    TransferFail: lambda c, s, e: _moves(c).transfer_failed(c, s, e.request),
    TransferLost: lambda _c, s, e: pull.transfer_lost(s, e.request),
    Continue: lambda c, s, e: sessions.go_on(c, s, e.engine, e.request),
    LeaseExpire: lambda c, s, e: _moves(c).lease_expired(c, s, e.request),
    StrayReport: lambda _c, s, e: transfer_ends.stray_report(s, e.engine, e.request),
}


def apply(cluster: config.Cluster, state: State, event: Event) -> Step:
    """Apply one event. A `Schedule` without choices chooses greedily; with choices, each choice
    must be allowed.

    Raises NotAllowed where the spec forbids the event in this state.
    """
    if isinstance(event, Schedule):
        resolved, after, effects = _schedule(cluster, state, event)
    else:
        resolved, effects = event, Effects()
        after = SIMPLE[type(event)](cluster, state, event)
    if isinstance(event, ResetPrefixCache | ResetRunning) and after is not state:
        effects = Effects(resets=(event.engine,))
    if isinstance(event, Complete) and cluster.engine(event.engine).overlaps:
        before, ran = state.engine(event.engine), after.engine(event.engine)
        ran, reads = overlap.carried_out(cluster.engine(event.engine), before, ran)
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
