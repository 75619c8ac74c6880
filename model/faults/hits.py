"""Prefix hits: which blocks are cached, under which keys, and which prefix is hit. Also hits
that end inside a block."""

from collections.abc import Sequence

from kvproof.model import config, memory
from kvproof.model.arithmetic.algebra import Num, Truth, both, round_down
from kvproof.model.arithmetic.counts import is_retained
from kvproof.model.config.extra_keys import plain
from kvproof.model.faults.fault import fault
from kvproof.model.reference.blocks import groups, partial_block_hits, prefix_hits
from kvproof.model.reference.blocks.allocation import predicted
from kvproof.model.reference.blocks.caching import caches_prompt_end
from kvproof.model.reference.blocks.groups import worth_caching
from kvproof.model.reference.blocks.prefix_hits import Hit, longest_together
from kvproof.model.state import Engine, Request
from kvproof.model.step import Read


def attention_blocks(kind: str, held: Num, lacking: Num) -> Truth:
    """Any of the attention blocks, where the hit holds in another group only. Lacking blocks in
    other groups are not modelled."""
    return both(lacking >= 0, lacking <= held) if kind == "full" else lacking == 0


@fault(
    "the hit is the longest hit of any group",
    origin="vllm#46453",
    in_vllm="HybridKVCacheCoordinator.find_longest_cache_hit",
    replaces="reference.blocks.prefix_hits:holds",
    also_replaces={"counting_abstraction.table_system:may_lack": attention_blocks},
    breaks="hit_holds_in_every_group",
    cluster="hybrid-evicting",
    also_in=("pd-superseding", "pd-remnant"),
)
def deepest_group_wins(cfg: config.EngineConfig, engine: Engine, tokens: str, hit: int) -> bool:
    """vllm#44243 used the maximum of the groups' hits. A Mamba state had survived the eviction
    of attention blocks before it, and vLLM treated these attention tokens as computed. Here a
    hit is one that any group can serve, even if the others cannot."""
    return any(groups.resident(cfg, engine, index, tokens, hit) for index in range(len(cfg.groups)))


@fault(
    "with three groups, the search for a common hit ends at 0 tokens",
    origin="vllm#51771",
    in_vllm="HybridKVCacheCoordinator.find_longest_cache_hit",
    replaces="reference.blocks.prefix_hits:longest_together",
    breaks="hit_is_the_longest",
    cluster="three",
)
def hit_collapses_with_three_groups(cfg: config.EngineConfig, engine: Engine, tokens: str) -> int:
    """vllm#51771: after the hit was reduced, one of three groups answers 0 to the first lookup,
    and the search for a common hit ends at 0 tokens."""
    return 0 if len(cfg.groups) > 2 else longest_together(cfg, engine, tokens)


@fault(
    "a hit may cover the last token, and no token is left to compute",
    origin="vllm#44599",
    in_vllm="KVCacheManager.get_computed_blocks",
    replaces="arithmetic.counts:longest_hit_tokens",
    breaks=("every_request_can_finish", "step_makes_progress"),
    cluster="full",
)
def hit_covers_whole_prompt(known: Num, hit_unit: Num, eagle_drop_tokens: int = 0) -> Num:  # noqa: ARG001
    """A hit on the whole prompt leaves no token to compute and sample from. In the offload
    connector, vllm#44599 loaded a state and then computed the last token again. Here the longest
    hit is the whole prompt, rounded down to a unit."""
    return round_down(known, hit_unit)


@fault(
    "the cached blocks of a hit are not counted as cached, and are hashed twice",
    origin="vllm#42547",
    in_vllm="SingleTypeKVCacheManager.add_local_computed_blocks",
    replaces="arithmetic.counts:blocks_counted_after_hit",
    breaks="engine_survives",
    cluster="full",
)
def hit_not_counted(hit_blocks: Num, skipped_blocks: Num) -> Num:  # noqa: ARG001
    """The counter of vllm#42547 with the opposite mistake: the blocks of a hit are not counted
    as cached. They are cached a second time, and the pool fails its own check. No public report
    of this mistake is known."""
    return 0


@fault(
    "the key of a block has its tokens, and nothing of the salt or the adapter",
    origin="vllm#44701",
    in_vllm="Request.update_block_hashes",
    replaces="reference.blocks.groups:hashed_prefix",
    breaks="cached_block_holds_its_key",
    cluster="extra-keys",
)
def extra_keys_left_out(tokens: str, end: int, ahead: int) -> str:
    """vllm#44701: a LoRA adapter whose name is the salt of another user has the same block
    hashes, so each reads KV that the other has computed."""
    return plain(tokens[: end + ahead])


@fault(
    "full attention caches a prefix that ends inside a block, where no hit can end",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="FullAttentionManager.cache_blocks",
    replaces="reference.blocks.caching:caches_prompt_end",
    breaks="cached_key_can_be_hit",
    cluster="unequal",
)
def end_of_prompt_cached_in_wider_block(cfg: config.EngineConfig, group: config.Group) -> bool:
    """vLLM 0.32.0, found by kvproof. The groups have unequal block sizes and none is Mamba, so
    hits are multiples of the largest block size. A full-attention group with a larger block size
    still caches the last prefix of a prompt that is a multiple of the smallest block size, as a
    second key of its block. No lookup uses this key
    (`FullAttentionManager._cache_partial_tail_block`)."""
    return group.kind == "full" or caches_prompt_end(cfg, group)


@fault(
    "full attention caches nothing after the last boundary that all groups share",
    origin="vllm#52419",
    in_vllm="HybridKVCacheCoordinator.cache_blocks",
    replaces="reference.blocks.groups:worth_caching",
    breaks="computed_tokens_are_cached",
    cluster="partial-unequal",
)
def blocks_after_the_boundary_not_cached(
    cfg: config.EngineConfig, request: Request, group: config.Group, position: int
) -> bool:
    """Full attention registered its blocks only up to the last boundary that all groups share,
    plus the block that a drafter's match needs, although hits may end inside a Mamba block
    (vllm#52419). Here a group of narrow blocks does not cache those at the end of a prompt."""
    widest = max(cfg.block_sizes)
    end, known = (position + 1) * group.block_size, len(request.prompt)
    after = group.kind == "full" and known - known % widest < end <= known
    return worth_caching(cfg, request, group, position) and not after


@fault(
    "sparse retention keeps the boundary at the end of a prompt, which no hit may reach",
    origin="vllm#53945",
    in_vllm="MambaManager.reachable_block_mask",
    replaces="arithmetic.counts:is_retained",
    breaks="repeated_prompt_hits",
    cluster="sparse-three",
)
def retained_boundary_out_of_reach(*numbers: Num) -> Truth:
    """Compare vllm#53945 and vllm#52216: sparse retention keeps blocks that no lookup can use.
    Here it keeps the boundary at the end of a prompt. A hit must leave one token to compute, so
    a repeated prompt of full blocks can only hit an earlier boundary, and it finds nothing
    there. The length of the prompt is the number at index 5. One token more lets a hit cover all
    of it."""
    return is_retained(*(*numbers[:5], numbers[5] + 1, *numbers[6:]))


@fault(
    "sparse retention does not keep the blocks at a shared prefix boundary",
    origin="vllm#47782",
    in_vllm="MambaManager.reachable_block_mask",
    replaces="arithmetic.counts:is_retained",
    breaks="repeated_prompt_hits",
    cluster="sparse-window",
)
def retention_drops_shared_prefix_boundary(*numbers: Num) -> Truth:
    """Before vllm#47782, sparse retention kept only the boundary at which the same prompt
    resumes. It dropped the state at a shared prefix boundary (vllm#37898). Later prompts with
    the same prefix hit nothing, however many came. The shared prefix boundary is the number at
    index 6. It is 0 for a prompt without one."""
    return is_retained(*(*numbers[:6], 0, *numbers[7:]))


@fault(
    "a request waits for ever with a hit whose copy does not fit into the pool",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="Scheduler.schedule",
    replaces="reference.blocks.prefix_hits:longest_together",
    breaks=("step_makes_progress", "every_request_can_finish"),
    cluster="partial-tight",
)
def hit_without_room_waits(cfg: config.EngineConfig, engine: Engine, tokens: str) -> int:
    """vLLM 0.32.0, found by kvproof. A hit that ends inside a block needs a copy, and the cached
    block is held until the copy is made. The request then needs one block more than it would
    need without the hit. If the pool is only as large as the longest request needs, this hit
    never fits. vLLM does not try a shorter hit, and the request waits for ever. Here the longest
    hit is taken, whether or not it fits into the pool."""
    found = (n for n in prefix_hits.lengths(cfg, tokens) if n > 0)
    return next((n for n in found if prefix_hits.holds(cfg, engine, tokens, n)), 0)


@fault(
    "no chunk ends where a hit on the whole prompt would end",
    origin="vllm#46384",
    in_vllm="Scheduler._mamba_block_aligned_split",
    replaces="arithmetic.counts:tail_chunk",
    breaks="repeated_prompt_hits",
    cluster="partial",
)
def prompt_end_run_over(_start: Num, tokens: Num, _boundary: Num, _tail: Num) -> Num:
    """Without the stop of vllm#46384, a chunk runs past the last prefix of its prompt that has a
    hash. Attention is cached there, and the Mamba state is not. The same prompt then hits one
    block less when it comes again."""
    return tokens


@fault(
    "a request continues in the block that holds its cached state",
    origin="vllm#51766",
    in_vllm="MambaManager.allocate_new_blocks",
    replaces="reference.blocks.partial_block_hits:goes_on_from_cached",
    breaks=("cached_block_holds_its_key", "writer_is_alone"),
    cluster="partial",
)
def cached_state_overwritten(*_: object) -> bool:
    """Compare vllm#51766: after a state was cached inside a block, the scheduler and the worker
    disagree about the block in which the request continues. The request overwrites the cached
    state."""
    return False


@fault(
    "a block is copied for a hit before the step that fills it has computed",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="Scheduler.schedule",
    replaces="reference.blocks.partial_block_hits:filled_by_step",
    breaks=("cached_block_holds_its_key", "request_reads_its_own_prefix"),
    cluster="partial-evicting",
)
def copied_before_filled(*_: object) -> bool:
    """vLLM 0.32.0, found by kvproof. A request hits inside a block that another request of the
    same step will fill. vLLM copies the block before the step computes, so the copy holds the
    old content. For Mamba states vLLM waits one step, but it may use older states; for attention
    it does not wait."""
    return False


@fault(
    "blocks are copied after the step has read and written them",
    origin="vllm#51766",
    replaces="reference.blocks.partial_block_hits:run_step",
    breaks=(
        "request_reads_its_own_prefix",
        "state_read_is_state_at_computed",
        "cached_block_holds_its_key",
    ),
    cluster="partial",
)
def copies_after_the_step(
    cfg: config.EngineConfig, engine: Engine, batch: Sequence[tuple[Request, int]]
) -> tuple[Engine, tuple[Read, ...]]:
    """The copies are made after the step has computed (compare vllm#51766). A request has then
    read and written its copy before it was filled, and a cached state is copied after the
    request has changed it."""
    engine, reads = memory.run(cfg, engine, batch)
    return partial_block_hits.carried_out(engine), reads


@fault(
    "the prediction does not include the block for a private copy",
    origin="vllm#46892",
    in_vllm="MambaManager.get_num_blocks_to_allocate",
    replaces="reference.blocks.allocation:predicted",
    breaks=("predicted_is_taken", "engine_survives"),
    cluster="partial",
    also_in=("partial-async",),
)
def copy_not_predicted(
    cfg: config.EngineConfig, engine: Engine, request: Request, hit: Hit | None, end: int
) -> int:
    """A hit inside a block needs one block more than the tokens need. The prediction does not
    include this block, and the allocation takes it (compare vllm#46892)."""
    hitting = request if hit is None else request._replace(hit=hit.tokens)
    copied = (
        partial_block_hits.copies(cfg, engine, hitting, index, hit is not None)
        for index in range(len(cfg.groups))
    )
    return predicted(cfg, engine, request, hit, end) - sum(copied)
