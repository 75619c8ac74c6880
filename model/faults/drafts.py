"""Speculative decoding: draft tokens, lookahead slots, and the block that a hit drops for an
EAGLE drafter."""

from kvproof.model import config
from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num, Truth, min_
from kvproof.model.arithmetic.counts import align_chunk, serves_a_hit, state_blocks_predicted
from kvproof.model.errors import NoRoom
from kvproof.model.faults.fault import fault
from kvproof.model.group_needs import grown
from kvproof.model.reference.blocks.allocation import extend
from kvproof.model.reference.blocks.prefix_hits import longest_possible
from kvproof.model.reference.scheduling.greedy import Greedy
from kvproof.model.state import Death, Engine, Request, Table


@fault(
    "a block is cached although some of its tokens are drafts",
    origin="vllm#18668",
    in_vllm="KVCacheManager.allocate_slots",
    replaces="arithmetic.counts:tokens_to_cache",
    breaks=("cached_block_holds_its_key", "writer_is_alone", "counter_counts_only_cached"),
    cluster="drafts",
)
def drafts_are_cached(end: Num, known: Num) -> Num:  # noqa: ARG001
    """Blocks are cached up to the end of a step, drafts included (compare vllm#18668, about the
    number of drafts). A block with a rejected draft is cached and then overwritten."""
    return end


@fault(
    "rejected drafts stay counted as computed tokens",
    origin="vllm#48245",
    in_vllm="Scheduler.update_from_output",
    replaces="arithmetic.counts:computed_after_drafts",
    breaks=("placeholders_are_samples_in_flight", "request_reads_its_own_prefix"),
    cluster="drafts",
)
def rejected_drafts_are_computed(end: Num, known: Num, accepted: Num) -> Num:  # noqa: ARG001
    """A request did not subtract the rejected drafts from its computed tokens (compare
    vllm#48245). It continues as if the KV of these drafts were the KV of its tokens."""
    return end


@fault(
    "no blocks are allocated for the lookahead slots of the drafter",
    origin="vllm#57605",
    in_vllm="KVCacheManager.allocate_slots",
    replaces="group_needs:grown",
    breaks="writer_is_alone",
    cluster="drafts",
)
def lookahead_not_reserved(
    cfg: config.EngineConfig, group: config.Group, table: Table, end: int, _ahead: int, **how: bool
) -> int:
    """vLLM did not reserve the lookahead slots in which a drafter writes (vllm#57605, for Mamba
    in align mode). At a block boundary the drafter writes outside the block table."""
    return grown(cfg, group, table, end, 0, **how)


@fault(
    "an admission allocates no blocks for the lookahead slots of the drafter",
    origin="vllm#43733",
    in_vllm="Scheduler.schedule",
    replaces="group_needs:grown",
    breaks="writer_is_alone",
    cluster="drafts",
)
def first_step_reserves_no_lookahead(
    cfg: config.EngineConfig,
    group: config.Group,
    table: Table,
    end: int,
    ahead: int,
    *,
    fresh: bool = False,
) -> int:
    """vllm#43733: the lookahead slots of the drafter were left out in the first step of a
    request, so that D takes as many blocks as P. But a request without a load drafts in its
    first step, too."""
    return grown(cfg, group, table, end, 0 if fresh else ahead, fresh=fresh)


leaves_room = Greedy.leaves_room


@fault(
    "a load waits for the blocks of a whole step with drafts, although its own blocks have room",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="Scheduler.schedule",
    replaces="reference.scheduling.greedy:Greedy.leaves_room",
    breaks="every_request_can_finish",
    cluster="pd-drafts-tight",
)
def load_keeps_room_for_drafts(work: Greedy, before: Engine, name: str) -> bool:
    """vLLM 0.32.0 on D with a drafter: a load is admitted only if, in each attention group,
    blocks for a whole step with drafts are free in addition. The blocks of the load already have
    room for some of these tokens. A prompt that fits waits for ever, and so do all requests
    behind it. A whole step has a sampled token, its drafts and the lookahead slots of the
    drafter."""
    if not work.cfg.drafts or work.engine.dead:
        return leaves_room(work, before, name)
    slots = 1 + work.cfg.drafts + work.cfg.lookahead
    promised = sum(work.still_needed(r, slots) for r in before.requests if work.has_begun(r))
    rest = work.still_needed(work.engine.request(name), work.cfg.lookahead)
    sizes = (group.block_size for group in work.cfg.groups if group.attention)
    kept = sum(int(counts.blocks_for_tokens(slots, size)) for size in sizes)
    needed, free = promised + max(rest, kept), len(work.engine.free)
    if needed > free:
        taken = len(before.free) - free
        text = f"{name} would take blocks that other requests need to finish"
        raise NoRoom(text, needed + taken, free + taken)
    return True


@fault(
    "a hit includes the last matched block, although a drafter has layers in this group",
    origin="vllm#17137",
    in_vllm="HybridKVCacheCoordinator.find_longest_cache_hit",
    replaces="reference.blocks.groups:matched_and_dropped",
    breaks="hit_holds_in_every_group",
    cluster="drafts",
)
def last_match_not_dropped(_length: int, _block_size: int) -> tuple[int, ...]:
    """With an EAGLE drafter, the hit included the last matched block (vllm#17137). The drafter's
    layers then read what they wrote for a prompt that continues with another token."""
    return ()


@fault(
    "with one group, the matched block that is dropped must end before the last token",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="UnitaryKVCacheCoordinator.find_longest_cache_hit",
    replaces="reference.blocks.prefix_hits:longest_possible",
    breaks=("hit_is_the_longest", "repeated_prompt_hits"),
    cluster="drafts-aligned",
)
def eagle_drop_before_the_last_token(cfg: config.EngineConfig, tokens: str) -> int:
    """vLLM 0.32.0 with one cache group and an EAGLE drafter looks up a hit that ends before the
    last token, as it does without a drafter, and then drops the last matched block. A prompt
    that ends on a block boundary loses one block more than necessary. With several groups vLLM
    does not lose it."""
    shorter = cfg.eagle_drop_tokens and len(cfg.groups) == 1
    return longest_possible(cfg, tokens[:-1] if shorter else tokens)


@fault(
    "the block after a boundary is not hashed, although a hit with a drafter must match it",
    origin="vllm#44082",
    in_vllm="SlidingWindowManager.reachable_block_mask",
    replaces="arithmetic.counts:serves_a_hit",
    breaks="repeated_prompt_hits",
    cluster="window-drafts",
)
def eagle_drop_block_not_cached(
    block: Num, window: Num, block_size: Num, hit_unit: Num, *_dropped: int
) -> Truth:
    """The mask of blocks worth hashing left out the block after a boundary, which a lookup with
    an EAGLE drafter must match (vllm#44082). No hit of this window group is possible. Here the
    mask is that of a group without a drafter."""
    return serves_a_hit(block, window, block_size, hit_unit)


@fault(
    "a block is cached before the token after it is known, which its hash covers",
    origin="vllm#50438",
    replaces="arithmetic.counts:hashed_tokens",
    breaks="drafter_holds_its_key",
    cluster="lookahead-hashes",
)
def cached_before_the_next_token(tokens: Num, known: Num, ahead: Num) -> Num:  # noqa: ARG001
    """A block was cached before the token after it was known, which its hash covers: the drafter
    may compute the block with another token than the hash says (vllm#50438). Here all tokens may
    be cached, whatever comes after them."""
    return tokens


UNSEEN = "*"
"""A letter in place of a token that a hash does not cover."""


@fault(
    "no block of a match is dropped, and the hash of a block does not cover the next token",
    origin="vllm#50438",
    replaces="reference.blocks.groups:hashed_prefix",
    breaks=("drafter_holds_its_key", "hit_holds_in_every_group"),
    cluster="lookahead-hashes",
)
def next_token_not_hashed(tokens: str, end: int, ahead: int) -> str:
    """A hit used the whole match, and the hash of a block did not cover the next token. The
    drafter had computed the last token of the block with another next token (vllm#50438). Here a
    key is the same for every token after the block."""
    return tokens[:end] + UNSEEN * ahead


@fault(
    "the last state of a prompt is kept after the boundary at which a drafter lets the "
    "prompt resume",
    origin="vllm#53945",
    in_vllm="Scheduler._mamba_block_aligned_split",
    replaces="arithmetic.counts:align_chunk",
    breaks="repeated_prompt_hits",
    cluster="hybrid-drafts",
)
def state_past_the_resume(*numbers: Num) -> Num:
    """With a drafter, a repeated prompt resumes one block earlier, and no state was kept there
    (vllm#53945). The hit rate of hybrid models with EAGLE was 0 %. The align split takes the
    number at index 7 from the drafter, and does without it here."""
    return align_chunk(*numbers[:7])


@fault(
    "a request continues from the state after rejected drafts",
    origin="vllm#57128",
    replaces="draft_memory:continued_from",
    breaks="state_read_is_state_at_computed",
    cluster="hybrid-drafts",
)
def state_of_rejected_drafts(size: int, known: int, end: int, accepted: int) -> int:
    """A request continued from the state after all its drafts, the rejected drafts included
    (vllm#42792 and vllm#57128). The answer had wrong tokens, and nothing reported it."""
    running, boundary = (end - 1) // size, int(counts.round_down(known + accepted, size))
    own = boundary > known and boundary // size - 1 == running
    return running if own else running + max(end - known, 0)


@fault(
    "the engine dies if a request holds more blocks than its next step needs",
    origin="vllm#43382",
    in_vllm="MambaManager.allocate_new_blocks",
    replaces="reference.blocks.allocation:extend",
    breaks="engine_survives",
    cluster="hybrid-drafts-cut",
)
def fewer_blocks_than_held_dies(
    cfg: config.EngineConfig,
    engine: Engine,
    request: Request,
    end: int,
    *,
    fresh: bool = False,
    loads: bool = False,
) -> tuple[Engine, Request]:
    """After drafts were rejected, a request may need fewer blocks than it holds. vLLM's align
    mode asserted that this never happens (vllm#39562, vllm#43382). Here an engine in align mode
    dies if a table has more entries than it needs."""
    grown, longer = extend(cfg, engine, request, end, fresh=fresh, loads=loads)
    for group, table in zip(cfg.groups, request.tables, strict=True):
        needed = int(counts.blocks_for_tokens(end, group.block_size)) + cfg.drafts
        if group.aligned and len(table) > needed:
            dead = Death(message=f"the request holds {len(table)} blocks and needs {needed}")
            grown = grown._replace(dead=dead)
    return grown, longer


@fault(
    "if a request needs fewer state blocks than it holds, the prediction is negative",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="MambaManager.get_num_blocks_to_allocate",
    replaces="arithmetic.counts:state_blocks_predicted",
    breaks="predicted_is_taken",
    cluster="hybrid-drafts-cut",
)
def fewer_than_none_predicted(
    end: Num, block_size: Num, held_blocks: Num, scratch: int = 0, fresh: int = 0
) -> Num:
    """vLLM 0.32.0: after drafts were rejected, a request needs fewer state blocks than it holds,
    and the prediction is negative (compare vllm#46892 and vllm#43382). The request takes no
    block. Here, with a drafter, the blocks held are subtracted from those needed."""
    new_blocks = counts.blocks_for_tokens(end, block_size) + scratch - held_blocks
    if not scratch:
        return state_blocks_predicted(end, block_size, held_blocks)
    return min_(new_blocks, 1 + fresh)
