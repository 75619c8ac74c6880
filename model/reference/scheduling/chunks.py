"""How many tokens of a request a step computes.

Source: `Scheduler._mamba_block_aligned_split` of vLLM V1.
"""

from kvproof.model import config
from kvproof.model.arithmetic import counts
from kvproof.model.reference.blocks import partial_block_hits
from kvproof.model.reference.blocks.prefix_hits import Hit
from kvproof.model.reference.features import drafting, in_flight
from kvproof.model.reference.scheduling.scheduler_step import SchedulerStep
from kvproof.model.state import RUNNING, Request


def computable_tokens(work: SchedulerStep, request: Request, start: int, admitted: bool) -> int:
    """The number of tokens of a request that this step may still compute: known tokens, pending
    tokens of steps in flight, and drafts. 0 where the steps in flight complete the output."""
    if request.status == RUNNING and in_flight.all_under_way(work.engine, request):
        return 0
    known = in_flight.counted_on(work.engine, request)
    drafts = drafting.computable(work.cfg, request, start, admitted)
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
