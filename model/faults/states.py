"""Mamba groups: where a state is kept, where a chunk ends (the align split), and how many blocks
states need."""

from kvproof.model import config
from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num, Truth, ceil_div, if_, max_, min_
from kvproof.model.arithmetic.counts import align_chunk
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Lists
from kvproof.model.faults.fault import fault
from kvproof.model.reference.blocks import pool
from kvproof.model.reference.blocks.allocation import Grown
from kvproof.model.reference.blocks.pool import cache_block
from kvproof.model.reference.blocks.prefix_hits import Hit
from kvproof.model.reference.scheduling.admission import begin_load
from kvproof.model.reference.scheduling.scheduler_step import SchedulerStep
from kvproof.model.state import NULL, Death, Engine, Key, Request


@fault(
    "a chunk ends where the token budget ends, and its state is cached as the state of the block",
    origin="vllm#51113",
    in_vllm="Scheduler._mamba_block_aligned_split",
    replaces="arithmetic.counts:align_chunk",
    breaks=("cached_block_holds_its_key", "repeated_prompt_hits"),
    cluster="hybrid-chunked",
    also_in=("hybrid-siblings",),
)
def no_align_split(_start: Num, tokens: Num, *_others: Num) -> Num:
    """vllm#43559, fixed by vllm#51113: a chunk ended inside a block, and its state was later
    hashed as the state of the full block. Here a chunk has all tokens that the budget allows."""
    return tokens


@fault(
    "a chunk is extended to the end of its block, beyond the token budget of the step",
    origin="vllm#36734",
    in_vllm="Scheduler._mamba_block_aligned_split",
    replaces="arithmetic.counts:align_chunk",
    breaks="engine_survives",
    cluster="hybrid-chunked",
)
def chunk_rounds_up(
    start: Num, tokens: Num, prefill_end: Num, known: Num, block_size: Num, *others: Num
) -> Num:
    """The align split for a block wider than the token budget (compare vllm#36734), with the
    opposite mistake: the chunk is extended to the end of its block. The step then has more
    tokens than its budget, and the scheduler fails its own check."""
    rounded = min_(ceil_div(start + tokens, block_size) * block_size, prefill_end) - start
    longer = if_(start + tokens < prefill_end, rounded, tokens)
    return align_chunk(start, longer, prefill_end, known, block_size, *others)


@fault(
    "the align split waits for a budget as wide as the block, which no step has",
    origin="vllm#36734",
    in_vllm="Scheduler._mamba_block_aligned_split",
    replaces="arithmetic.counts:align_chunk",
    breaks=("every_request_can_finish", "step_makes_progress"),
    cluster="hybrid-narrow",
)
def wide_block_never_crossed(
    start: Num, tokens: Num, prefill_end: Num, known: Num, block_size: Num, limit: Num, *others: Num
) -> Num:
    """The align split waits for a token budget that reaches the next block boundary
    (vllm#36734). If a block is wider than the budget of a whole step, no step has such a budget,
    and the request waits for ever. Here the align split is told that the whole block fits into a
    step."""
    wide = max_(limit, block_size)
    return align_chunk(start, tokens, prefill_end, known, block_size, wide, *others)


@fault(
    "the align split uses the smallest block size of all groups",
    origin="vllm#54076",
    in_vllm="Scheduler._mamba_block_aligned_split",
    replaces="reference.scheduling.computing:split_unit",
    breaks=("cached_block_holds_its_key", "state_read_is_state_at_computed"),
    cluster="partial-unequal",
)
def split_at_the_smallest_block(cfg: config.EngineConfig) -> int:
    """vLLM 0.32.0 (vllm#54076): the groups have unequal block sizes.
    `Scheduler._mamba_block_aligned_split` ends chunks at multiples of the smallest block size,
    not of the Mamba group's block size. A chunk then runs past a state boundary, and the state
    at an earlier chunk's end is cached as the state at that boundary."""
    return min(cfg.block_sizes) if cfg.aligned_group else 0


@fault(
    "a chunk ends one token before the shared prefix boundary, inside a block",
    origin="vllm#37898",
    in_vllm="Scheduler._mamba_block_aligned_split",
    replaces="arithmetic.counts:align_chunk",
    breaks=("every_request_can_finish", "step_makes_progress"),
    cluster="hybrid-siblings",
)
def shared_prefix_boundary_inside_a_block(*numbers: Num) -> Num:
    """A chunk ends one token before the shared prefix boundary, inside a block (compare
    vllm#37898, where the boundary is a block boundary). The state there cannot be cached, and
    the request waits for ever for the last token of the block. The shared prefix boundary is the
    number at index 6."""
    return align_chunk(*(*numbers[:6], numbers[6] - 1, *numbers[7:]))


@fault(
    "the align split is applied to a load of 0 new tokens and defers it for ever",
    origin="vllm#42554",
    in_vllm="Scheduler._mamba_block_aligned_split",
    replaces="reference.scheduling.admission:begin_load",
    breaks="every_request_can_finish",
    cluster="pd",
)
def align_split_during_load(
    work: SchedulerStep, request: Request, hit: Hit, recorded: Lists
) -> Grown | None:
    """vllm#42554: a request that loads schedules no tokens. The align split of 0 tokens is 0,
    and vLLM reads 0 as "not in this step", so the request is never admitted. Here an engine with
    a Mamba group in align mode begins no load."""
    if work.cfg.aligned_group:
        raise NotAllowed("the align split leaves 0 tokens of a load")
    return begin_load(work, request, hit, recorded)


@fault(
    "the align split asserts that a request has no external tokens",
    origin="vllm#42554",
    in_vllm="Scheduler._mamba_block_aligned_split",
    replaces="reference.scheduling.admission:begin_load",
    breaks="engine_survives",
    cluster="pd",
)
def align_split_refuses_external(
    work: SchedulerStep, request: Request, hit: Hit, recorded: Lists
) -> Grown | None:
    """Before vllm#42554, `_mamba_block_aligned_split` asserted `num_external_computed_tokens ==
    0`. The first load of a hybrid model stopped D's engine. Here an engine with a Mamba group in
    align mode dies at its first load."""
    if work.cfg.aligned_group:
        work.die(Death(message="the align split refuses external tokens"))
        return None
    return begin_load(work, request, hit, recorded)


@fault(
    "the state of a prompt is kept only at its last block boundary",
    origin="vllm#43587",
    in_vllm="Scheduler._mamba_block_aligned_split",
    replaces="reference.blocks.prefix_hits:shared_prefix_boundary",
    breaks="repeated_prompt_hits",
    cluster="hybrid-siblings",
)
def state_only_at_last_boundary(_alone: int, _together: int) -> int:
    """vllm#43587: of a prompt that is computed in one chunk, only one state is kept. Other
    prompts that share a shorter prefix never find a state. Fixes are a state at every block
    (vllm#43628), or a state at the shared prefix boundary (vllm#37898; the reference does this)."""
    return 0


@fault(
    "the states before the running one are never freed",
    origin="vllm#39734",
    in_vllm="MambaManager.get_num_skipped_tokens",
    replaces="arithmetic.counts:tokens_skipped_by_state",
    breaks="no_more_is_held_than_is_read",
    cluster="hybrid-chunked",
)
def old_states_are_kept(_computed: Num) -> Num:
    """Compare vllm#39734: at start, vLLM reserves fewer blocks for a request than the request
    will hold. A Mamba group that never frees the states before the running state uses one block
    for each chunk."""
    return 0


@fault(
    "the block of the running state is freed with the blocks before it",
    origin="vllm#47728",
    in_vllm="MambaManager.get_num_skipped_tokens",
    replaces="arithmetic.counts:tokens_skipped_by_state",
    breaks="null_block_is_nobody",
    cluster="hybrid",
)
def running_state_freed(computed: Num) -> Num:
    """The mistake of vllm#47728 in a Mamba group: the last computed token counts as a token
    whose state is no longer needed. At the end of a block, the block of the running state is
    freed."""
    return computed


@fault(
    "null placeholders before the tokens of a load are counted as cached",
    origin="vllm#42547",
    in_vllm="SingleTypeKVCacheManager.add_local_computed_blocks",
    replaces="arithmetic.counts:blocks_counted_after_hit",
    breaks="counter_counts_only_cached",
    cluster="pd",
)
def null_blocks_counted_as_cached(hit_blocks: Num, skipped_blocks: Num) -> Num:
    """The first change of vllm#42547. vLLM 0.32.0 still counts null placeholders as cached. For
    Mamba and window groups the placeholders are positions that are never hashed, so the wrong
    count does no harm there. It does harm in any group in which a later lookup can ask for a
    skipped block. Here the whole table so far counts as cached, placeholders included."""
    return max_(hit_blocks, skipped_blocks)


@fault(
    "the null block is registered under the hashes of skipped Mamba positions",
    origin="vllm#42547",
    in_vllm="BlockPool.cache_full_blocks",
    replaces="reference.blocks.pool:cache_block",
    breaks=("null_block_is_nobody", "cached_block_holds_its_key"),
    cluster="hybrid",
)
def null_blocks_registered(
    cfg: config.EngineConfig, engine: Engine, key: Key, block: int
) -> Engine:
    """The second change of vllm#42547: it gave hashes to the null positions, so that lookups
    succeed and the attention hit survives. This is unsound: the null block holds no state, and a
    lookup that ends at such a position gives the request a state that does not exist. It has no
    effect as long as every such request also loads its state through the connector. vLLM's fix
    (vllm#44243) takes the hit from full attention alone and loads the state through the
    connector. Here a Mamba group caches the null block too, under the last key that it received."""
    if block != NULL or not cfg.groups[key[0]].aligned:
        return cache_block(cfg, engine, key, block)
    engine = pool.promote(engine, key, NULL)
    return pool.with_blocks(engine, {NULL: engine.blocks[NULL]._replace(key=key, also=())})


@fault(
    "the prediction includes the null placeholders of a Mamba table",
    origin="vllm#46892",
    in_vllm="MambaManager.get_num_blocks_to_allocate",
    replaces="arithmetic.counts:state_blocks_predicted",
    breaks=("table_fits_its_tokens", "predicted_is_taken"),
    cluster="hybrid",
    also_in=("pd",),
)
def placeholders_predicted(
    end: Num,
    block_size: Num,
    held_blocks: Num,
    scratch: int = 0,
    fresh: int = 0,  # noqa: ARG001
) -> Num:
    """The opposite of vllm#46892: the placeholders before the running state are counted among
    the blocks that a request will take. Here one block is predicted for each entry of the table."""
    return max_(counts.blocks_for_tokens(end, block_size) + scratch - held_blocks, 0)


@fault(
    "the prediction includes a cached state that the load makes superfluous",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="MambaManager.get_num_blocks_to_allocate",
    replaces="arithmetic.counts:state_is_used",
    breaks="predicted_is_taken",
    cluster="pd-superseding",
)
def superseded_state_reserved(hit_blocks: Num, _left_behind: Num) -> Truth:
    """vLLM 0.32.0, found by kvproof on the live connector (compare vllm#46892). D has cached a
    state at a boundary, full attention hits further, and P sends the state at the end. D does
    not use, reference or take the cached state. The prediction still counts it among the blocks
    taken from the free queue, so a request that fits exactly must wait."""
    return hit_blocks > 0


@fault(
    "the prediction does not include the block for the state that a store loads",
    origin="vllm#46892",
    in_vllm="MambaManager.get_num_blocks_to_allocate",
    replaces="reference.blocks.allocation:tokens_loaded_before_chunk",
    breaks=("engine_survives", "predicted_is_taken"),
    cluster="store-tight",
)
def loaded_state_not_predicted(_loaded: int, _end: int) -> int:
    """vLLM 0.32.0 (vllm#46892): a store loads the Mamba state at the end of its tokens, and the
    same step computes a chunk after it. This needs two blocks, and the prediction is limited to
    one. If the pool has exactly the predicted number of blocks, the allocation raises and the
    engine dies."""
    return 0


@fault(
    "P's placeholders before the Mamba state are not trimmed",
    origin="vllm#42554",
    in_vllm="NixlBaseConnectorWorker._apply_prefix_caching",
    replaces="arithmetic.counts:state_slots_moved",
    breaks=("paired_lists_are_equal", "null_block_is_nobody"),
    cluster="pd",
)
def ssm_placeholders_not_trimmed(slots: Num) -> Num:
    """Before vllm#42554, the two lists of a Mamba group had to have equal length without
    trimming. P's list had a placeholder for each block before the state, and D's list had one
    entry."""
    return slots
