"""Admission of a waiting request: it looks up the cache, and its load begins or ends.

Each choice has its guard: it raises NotAllowed where the reference would not make the choice.

Sources: `Scheduler.schedule` and `_update_waiting_for_remote_kv` of vLLM V1.
"""

from msgspec.structs import replace

from kvproof.model import block_lists
from kvproof.model.arithmetic import counts
from kvproof.model.config.sides import incoming
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Admit, FinishLoad, Lists, bare_choice
from kvproof.model.reference import in_flight
from kvproof.model.reference.blocks import caching, groups, partial_block_hits, pool
from kvproof.model.reference.blocks.allocation import Grown, without_progress
from kvproof.model.reference.blocks.prefix_hits import Hit, look_up
from kvproof.model.reference.scheduling.scheduler_step import SchedulerStep
from kvproof.model.reference.transfers import offers
from kvproof.model.reference.transfers.loads import start_load
from kvproof.model.reference.transfers.offers import check_external, looked_up_again
from kvproof.model.state import FAILED, LOADED, LOADING, PREEMPTED, WAITING, Request
from kvproof.model.step import Admission, Allocation


def admit(work: SchedulerStep, choice: Admit) -> None:
    """Admit a waiting request: it looks up the cache; with external tokens its load begins."""
    request = work.engine.request(choice.request)
    work.refuse_more_than_run(request)
    if request.status not in (WAITING, PREEMPTED) or request.tables:
        raise NotAllowed(f"{request.id} is {request.status} and cannot be admitted")
    if in_flight.awaits_output(work.engine.flights(request.id)):
        raise NotAllowed(f"{request.id} has output pending from before its preemption")
    request = looked_up_again(work.cfg, request)
    request = request._replace(external=choice.external)
    check_external(work.cluster, work.state.with_engine(work.engine), request, choice)
    hit = look_up(work.cfg, work.engine, request.tokens, choice.local_hit, choice.external)
    _refuse_states_of_this_step(work, request, hit)
    _refuse_copies_of_this_step(work, request, hit)
    work.admissions.append(
        Admission(
            work.engine.name,
            request.id,
            request.tokens,
            request.route,
            choice.local_hit,
            choice.external,
            work.engine.cached,
        )
    )
    work.engine = work.engine.with_request(request)
    recorded = replace(choice, hit=(), taken=())
    if choice.external and not work.cfg.store:
        grown = begin_load(work, request, hit, choice.taken)
        if grown is not None:
            recorded = replace(recorded, hit=grown.hit, taken=grown.from_queue)
    else:
        work.pending, work.to_bring = (request.id, hit), choice.taken
    work.chose.append(recorded)


def _refuse_states_of_this_step(work: SchedulerStep, request: Request, hit: Hit) -> None:
    """Raise NotAllowed where the hit uses a state that this step caches: this step reads before
    that state is written."""
    for index, group in enumerate(work.cfg.groups):
        ahead = work.cfg.hash_lookahead_tokens
        key = (index, groups.hashed_prefix(request.tokens, hit.own[index], ahead))
        held = work.engine.blocks_for(key)
        fresh = held and held[0] not in work.begun.blocks_for(key)
        if group.aligned and hit.own[index] and fresh:
            raise NotAllowed(f"{request.id} hits a state that this step will write")


def _refuse_copies_of_this_step(work: SchedulerStep, request: Request, hit: Hit) -> None:
    """Raise NotAllowed where the hit ends inside a block that this step fills: the copy is made
    before the step writes."""
    if not work.cfg.partial_block_hits:
        return
    for index, group in enumerate(work.cfg.groups):
        slots = hit.tokens % group.block_size
        if not slots or not group.attention:
            continue
        blocks = groups.hit_blocks(work.cfg, work.engine, index, request.tokens, hit.tokens)
        if partial_block_hits.filled_by_step(
            work.cfg, work.engine, work.scheduled, index, blocks[-1], slots
        ):
            raise NotAllowed(f"{request.id} has a hit inside a block that this step will fill")


def begin_load(work: SchedulerStep, request: Request, hit: Hit, recorded: Lists) -> Grown | None:
    """Take blocks for a hit and for the connector's tokens, and begin the load. Returns None where
    the engine dies when it takes them. A load computes nothing in its step, so the align split cuts
    nothing (vllm#42554)."""
    end = hit.tokens + request.external
    doomed = work.engine.dead
    grown = work.take_blocks(request, hit, end, recorded)
    died = work.engine.dead != doomed
    name = incoming(work.cluster, work.cfg.name, request.id)
    work.state = start_load(work.cluster, work.state.with_engine(work.engine), name)
    work.engine = work.state.engine(work.engine.name)
    return None if died else grown


def finish_load(work: SchedulerStep, choice: FinishLoad) -> None:
    """Finish a load: cache its blocks, or free them if it failed."""
    request = work.engine.request(choice.request)
    tables = request.tables
    if request.status == FAILED:
        engine = pool.release_all(work.engine, request)
        request = without_progress(request)._replace(status=WAITING)
        work.engine = engine.with_request(request)
    elif request.status == LOADED:
        work.engine, request = caching.cache(work.cfg, work.engine, request, request.computed)
        computed = int(counts.resumed_at(request.computed, len(request.tokens)))
        status = PREEMPTED if request.preemptions else WAITING
        if not computed and offers.asks_again(work.cluster, request):
            status, computed = LOADING, request.computed
            work.allocations.append(Allocation(work.engine.name, request.id, 0, 0))
        request = request._replace(status=status, computed=computed)
        work.engine = work.engine.with_request(request)
    else:
        raise NotAllowed(f"{request.id} is {request.status} and has no finished load")
    if work.engine.dead:
        work.chose.append(bare_choice(choice))
        work.die(work.engine.dead)
        return
    dropped = block_lists.freed(tables, request.tables)
    work.chose.append(replace(choice, freed=dropped))
