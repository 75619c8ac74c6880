"""Freeing blocks of requests: all blocks of a preempted request, the blocks that a request no
longer needs, or all blocks in a reset of the cache.

A reset needs a pool in which no block is in use; otherwise it is refused and changes nothing.
Another kind of reset preempts all running requests first. After that, no earlier computed KV may be
read: outputs of steps in flight are discarded, and requests start over.

Sources: `Scheduler._preempt_request` and `Scheduler.reset_prefix_cache` of vLLM V1. Not modelled:
`reset_running_requests` where other than running requests hold blocks (vLLM preempts, then raises),
and `reset_connector`.
"""

from msgspec.structs import replace

from kvproof.model import block_lists, config
from kvproof.model.environment import disturbances
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Preempt, Release, ResetPrefixCache, ResetRunning
from kvproof.model.kv_events import Cleared
from kvproof.model.reference import in_flight
from kvproof.model.reference.blocks import allocation, pool
from kvproof.model.reference.blocks.allocation import without_progress
from kvproof.model.reference.blocks.kv_event_queue import reporting
from kvproof.model.reference.scheduling import sessions
from kvproof.model.reference.scheduling.computing import aligned_chunk, computable_tokens
from kvproof.model.reference.scheduling.scheduler_step import SchedulerStep
from kvproof.model.state import PREEMPTED, RUNNING, VOID, WAITING, Engine, Request, State


def preempt(work: SchedulerStep, choice: Preempt) -> None:
    """Preempt a running request, only where the `needy` request does not fit otherwise. With the
    policy `priority` the preempted request may already be scheduled; then it is removed from the
    step. Where no request runs, it may be a waiting session; there the whole prompt must fit where
    the engine reserves it."""
    needy = work.engine.request(choice.needy)
    tables = needy.tables
    work.engine, needy = work.without_skipped(needy)
    skipped = block_lists.freed(tables, needy.tables)
    start = needy.computed
    wanted = aligned_chunk(work, needy, start, computable_tokens(work, needy, start, False), None)
    victim = work.engine.request(choice.request)
    reclaimed = sessions.gives_way(work.cluster, victim) and not work.engine.running
    whole = reclaimed and work.cfg.reserve_whole_prompt
    end = len(needy.tokens) if whole else start + wanted
    if allocation.predicted(work.cfg, work.engine, needy, None, end) <= len(work.engine.free):
        raise NotAllowed(f"{choice.request} is preempted though {needy.id} fits")
    scheduled = victim.id in dict(work.scheduled)
    idle = victim.status == RUNNING and (work.cfg.by_priority or not scheduled)
    if not idle and not reclaimed:
        raise NotAllowed(f"{victim.id} is preempted but is not idle")
    if in_flight.must_wait(work.cfg, work.engine, victim.id):
        raise NotAllowed(f"{victim.id} is preempted but a step in flight still uses its blocks")
    if scheduled:
        _unschedule(work, victim)
    work.engine = in_flight.invalidated(
        work.engine, victim.id, in_flight.fate_of_preempted(work.cfg.produces)
    )
    engine = pool.release_all(work.engine, victim)
    freed = block_lists.both(skipped, block_lists.freed(victim.tables, ()))
    running = tuple(r for r in engine.running if r != victim.id)
    work.engine = engine.with_request(preempted(victim))._replace(running=running)
    work.chose.append(replace(choice, freed=freed))


def preempted(request: Request) -> Request:
    """A request after its preemption: it starts over."""
    return without_progress(request)._replace(status=PREEMPTED, preemptions=1)


def release(work: SchedulerStep, choice: Release) -> None:
    """Free the blocks that a request waiting for blocks no longer needs."""
    request = work.engine.request(choice.request)
    if request.status not in (RUNNING, WAITING, PREEMPTED) or not request.tables:
        raise NotAllowed(f"{request.id} is {request.status} and cannot free blocks")
    work.engine, kept = work.without_skipped(request)
    freed = block_lists.freed(request.tables, kept.tables)
    work.chose.append(replace(choice, freed=freed))


def _unschedule(work: SchedulerStep, victim: Request) -> None:
    """Remove a request from the step. Its tokens are not computed."""
    work.budget += dict(work.scheduled)[victim.id]
    work.scheduled = [(name, tokens) for name, tokens in work.scheduled if name != victim.id]
    work.engine = pool.forget_uncomputed(work.begun, work.engine, victim)


def emptied(engine: Engine) -> Engine:
    """The engine without the cache entries of free blocks."""
    reports = engine.reports
    for block in engine.free:
        engine = pool.unregister(engine, block)
    return reporting(engine._replace(reports=reports), Cleared())


def of_idle_pool(cluster: config.Cluster, state: State, event: ResetPrefixCache) -> State:
    """Reset the cache. Where blocks are in use, the reset is refused and changes nothing."""
    engine = state.engine(event.engine)
    if not pool.is_idle(engine):
        if not cluster.resets_any_time:
            raise NotAllowed(f"the cache of {event.engine} is reset while blocks are in use")
        return state
    return state.with_engine(emptied(engine))


def with_preemption(cluster: config.Cluster, state: State, event: ResetRunning) -> State:
    """Preempt all running requests, the last one first, and empty the cache."""
    engine = state.engine(event.engine)
    if not disturbances.only_runners_hold(cluster.engine(event.engine), engine):
        raise NotAllowed(
            f"the cache of {event.engine} is reset while other than running requests hold blocks"
        )
    for name in reversed(engine.running):
        request = engine.request(name)
        engine = in_flight.invalidated(engine, name, VOID)
        engine = pool.release_all(engine, request)
        engine = engine.with_request(preempted(request))
    return state.with_engine(emptied(engine._replace(running=())))
