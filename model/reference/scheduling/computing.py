"""Scheduling of the next tokens of a request.

Sources: `Scheduler.schedule` and `KVCacheManager.allocate_slots` of vLLM V1.
"""

from msgspec.structs import replace

from kvproof.model import block_lists
from kvproof.model.arithmetic import counts
from kvproof.model.errors import NotAllowed, NoTokens
from kvproof.model.events import Admit, Compute, bare_choice
from kvproof.model.reference.blocks import caching
from kvproof.model.reference.blocks.growth import Grown
from kvproof.model.reference.features import drafting, in_flight
from kvproof.model.reference.scheduling.chunks import aligned_chunk, computable_tokens
from kvproof.model.reference.scheduling.scheduler_step import SchedulerStep
from kvproof.model.state import FAILED, LOADED, LOADING, PAUSED, RUNNING, Death


def compute(work: SchedulerStep, choice: Compute) -> None:
    """Schedule the next tokens of a running, loaded or just admitted request."""
    request = work.engine.request(choice.request)
    admitted = work.pending is not None and work.pending[0] == request.id
    hit = work.pending[1] if admitted and work.pending else None
    if request.status != RUNNING and not admitted and not request.tables:
        raise NotAllowed(f"{request.id} is {request.status} and cannot be scheduled")
    if request.status in (LOADING, LOADED, FAILED, PAUSED):
        raise NotAllowed(f"{request.id} is {request.status} and cannot be scheduled")
    if request.id in dict(work.scheduled):
        raise NotAllowed(f"{request.id} is scheduled twice in a step")
    work.refuse_more_than_run(request)
    start = hit.tokens + request.external if hit else request.computed
    limit = computable_tokens(work, request, start, admitted or request.status != RUNNING)
    if choice.tokens > limit and aligned_chunk(work, request, start, limit, hit) == choice.tokens:
        work.chose.append(bare_choice(choice))
        why = f"{choice.tokens} tokens are scheduled where {limit} were requested"
        work.die(Death(message=why))
        return
    if not 0 < choice.tokens <= limit:
        text = f"{request.id} gets {choice.tokens} tokens and may get at most {limit}"
        raise NotAllowed(text) if choice.tokens else NoTokens(text)
    if aligned_chunk(work, request, start, choice.tokens, hit) != choice.tokens:
        raise NotAllowed(f"{request.id} gets a chunk that the align split would cut")
    tables = request.tables
    if not admitted:
        work.engine, request = work.without_skipped(request)
    freed = block_lists.freed(tables, request.tables) or ((),) * len(work.cfg.groups)
    end = start + choice.tokens
    recorded = choice.taken
    if admitted and recorded:
        recorded = block_lists.both(work.to_bring, recorded)
    doomed = work.engine.dead
    grown = work.take_blocks(request, hit, end, recorded)
    request = grown.request
    work.chose.append(bare_choice(choice))
    work.pending = None
    if work.engine.dead:
        if doomed:  # the engine died in a load, and the scheduler continued
            _record(work, replace(choice, taken=grown.taken, freed=freed), grown, admitted)
        return
    if hit and request.external:
        work.brought.append(request.id)
    known = int(counts.tokens_to_cache(end, len(request.tokens)))
    work.engine, request = caching.cache(work.cfg, work.engine, request, known)
    if work.engine.dead:
        work.die(work.engine.dead)
        return
    running = work.engine.running
    if request.id not in running:
        running = (*running, request.id)
    ahead = end - in_flight.counted_on(work.engine, request)
    request = drafting.scheduled(request, ahead)._replace(status=RUNNING, computed=end)
    work.engine = work.engine.with_request(request)._replace(running=running)
    work.budget -= choice.tokens
    work.scheduled.append((request.id, choice.tokens))
    _record(work, replace(choice, taken=grown.taken, freed=freed), grown, admitted)


def _record(work: SchedulerStep, computed: Compute, grown: Grown, admitted: bool) -> None:
    """Record the blocks of the last choice, and those of the admission before its first chunk."""
    work.chose[-1] = computed
    for place in reversed(range(len(work.chose) if admitted else 0)):
        choice = work.chose[place]
        if isinstance(choice, Admit) and choice.request == computed.request:
            work.chose[place] = replace(choice, hit=grown.hit, taken=grown.brought)
            break
