"""Freeing blocks of requests: all blocks of a preempted request, or the blocks that a request no
longer needs.

Source: `Scheduler._preempt_request` of vLLM V1.
"""

from msgspec.structs import replace

from kvproof.model import block_lists
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Preempt, Release
from kvproof.model.reference.blocks import allocation, pool
from kvproof.model.reference.blocks.allocation import without_progress
from kvproof.model.reference.features import in_flight
from kvproof.model.reference.scheduling import sessions
from kvproof.model.reference.scheduling.chunks import aligned_chunk, computable_tokens
from kvproof.model.reference.scheduling.scheduler_step import SchedulerStep
from kvproof.model.state import PREEMPTED, RUNNING, WAITING, Request


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
