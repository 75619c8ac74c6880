"""Scheduling of the next tokens of a request: how many, and the blocks for them.

Sources: `Scheduler.schedule`, `Scheduler._mamba_block_aligned_split` and
`KVCacheManager.allocate_slots` of vLLM V1.
"""

from msgspec.structs import replace

from kvproof.model import block_lists, config
from kvproof.model.arithmetic import counts
from kvproof.model.errors import NotAllowed, NoTokens
from kvproof.model.events import Admit, Compute, bare_choice
from kvproof.model.reference import in_flight
from kvproof.model.reference.blocks import caching, partial_block_hits
from kvproof.model.reference.blocks.allocation import Grown
from kvproof.model.reference.blocks.prefix_hits import Hit
from kvproof.model.reference.scheduling.scheduler_step import SchedulerStep
from kvproof.model.state import FAILED, LOADED, LOADING, PAUSED, RUNNING, Death, Request


def computable_tokens(work: SchedulerStep, request: Request, start: int, admitted: bool) -> int:
    """The number of tokens of a request that this step may still compute: known tokens, pending
    tokens of steps in flight, and drafts. 0 where the steps in flight complete the output."""
    if request.status == RUNNING and in_flight.all_under_way(work.engine, request):
        return 0
    known = in_flight.counted_on(work.engine, request)
    drafts = in_flight.computable_drafts(work.cfg, request, start, admitted)
    most = most_beside_others(work.cfg.long_prefill_tokens, work.budget)
    return min(known + drafts - start, most if work.shared else work.budget)


def most_beside_others(limit: int, budget: int) -> int:
    """The largest number of tokens that a request may compute in a step with other requests. The
    step has `budget` tokens left; a `limit` of 0 means no limit."""
    return min(limit, budget) if limit else budget


def split_unit(cfg: config.EngineConfig) -> int:
    """The align split ends chunks at multiples of this many tokens: the block size of the Mamba
    group in align mode. 0 without such a group."""
    group = cfg.aligned_group
    return group.block_size if group else 0


def aligned_chunk(
    work: SchedulerStep, request: Request, start: int, tokens: int, hit: Hit | None
) -> int:
    """The tokens of a chunk after the align split."""
    size = split_unit(work.cfg)
    if not size:
        return tokens
    known = len(request.tokens)
    shared_prefix_boundary = hit.shared_prefix_boundary if hit else request.shared_prefix_boundary
    prefill_end = max(len(request.prompt), known - 1)
    boundary, tail = counts.longest_hit_tokens(known, size), 0
    if work.cfg.partial_block_hits:
        shared_prefix_boundary = counts.round_down(shared_prefix_boundary, size)
        tail = partial_block_hits.last_prefix(work.cfg, len(request.prompt))
        if boundary < tail == start + tokens:
            tokens = prefill_end - start  # a chunk may end there, inside a block
    tokens = int(
        counts.align_chunk(
            start,
            tokens,
            prefill_end,
            known,
            size,
            work.cfg.split_tokens,
            shared_prefix_boundary,
            work.cfg.eagle_drop_tokens,
        )
    )
    return int(counts.tail_chunk(start, tokens, boundary, tail))


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
    request = in_flight.with_drafts_of_step(request, ahead)._replace(status=RUNNING, computed=end)
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
