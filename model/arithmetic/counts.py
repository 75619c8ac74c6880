"""The arithmetic of KV blocks, written once. Every function takes and returns ints or Z3 terms (see
`algebra`). Units are in the names: `tokens`, `blocks` (logical KV blocks of one group), `slots`
(entries of a transfer list, in kernel blocks). Nothing else in kvproof computes these numbers."""

from kvproof.model.arithmetic.algebra import (
    Num,
    Truth,
    all_of,
    both,
    ceil_div,
    div,
    either,
    if_,
    max_,
    min_,
)
from kvproof.model.arithmetic.algebra import (
    round_down as round_down,
)


def blocks_for_tokens(tokens: Num, block_size: Num) -> Num:
    """Number of blocks that hold `tokens` tokens."""
    return ceil_div(tokens, block_size)


def full_blocks(tokens: Num, block_size: Num) -> Num:
    """Number of blocks that `tokens` tokens fill completely; only full blocks can be cached."""
    return div(tokens, block_size)


def settled_tokens(computed: Num, in_flight: Num) -> Num:
    """Computed tokens whose steps have ended; `in_flight` tokens are still being computed
    (`KVCacheManager.allocate_slots`: the processed tokens, vllm#47728)."""
    return computed - in_flight


def tokens_skipped_by_window(computed: Num, window: Num) -> Num:
    """Leading tokens that the next token does not attend to under a sliding window. It attends to
    itself and to `window - 1` tokens before it (`SlidingWindowManager.get_num_skipped_tokens`)."""
    return max_(computed - window + 1, 0)


def tokens_skipped_by_state(computed: Num) -> Num:
    """Tokens whose Mamba state is no longer needed: all except the last computed token
    (`MambaManager.get_num_skipped_tokens`)."""
    return tokens_skipped_by_window(computed, 2)


def window_blocks_for_hit(window: Num, block_size: Num) -> Num:
    """Number of blocks before a boundary that must be cached for a window hit at the boundary."""
    return ceil_div(window - 1, block_size)


def serves_a_hit(
    block: Num, window: Num, block_size: Num, hit_unit: Num, eagle_drop_blocks: int = 0
) -> Truth:
    """Whether the block at this position can serve a sliding-window hit at a multiple of `hit_unit`
    tokens. A block that cannot is not worth hashing (`SlidingWindowManager.reachable_block_mask`,
    dense retention). `eagle_drop_blocks` is 1 if a hit also needs a match of the block after it
    (vllm#44082)."""
    blocks_per_unit = div(hit_unit, block_size)
    # Z3 does not solve `block - 0` well
    shifted = block - eagle_drop_blocks if eagle_drop_blocks else block
    blocks_after = blocks_per_unit - 1 - (shifted - div(shifted, blocks_per_unit) * blocks_per_unit)
    need = window_blocks_for_hit(window, block_size)
    if not eagle_drop_blocks:
        return blocks_after < need
    need = need + eagle_drop_blocks
    return either(need >= blocks_per_unit, both(shifted >= 0, blocks_after < need))


def needed_at(
    block: Num, window: Num, block_size: Num, boundary: Num, eagle_drop_blocks: int = 0
) -> Truth:
    """Whether a sliding-window hit of `boundary` tokens needs the block at this position. With a
    drafter, `eagle_drop_blocks` blocks after the hit must match too."""
    end = full_blocks(boundary, block_size)
    last = end + eagle_drop_blocks if eagle_drop_blocks else end
    return both(end - window_blocks_for_hit(window, block_size) <= block, block < last)


def is_retained(
    block: Num,
    window: Num,
    block_size: Num,
    hit_unit: Num,
    interval: Num,
    prompt: Num,
    shared_prefix_boundary: Num,
    eagle_drop_tokens: int = 0,
    eagle_drop_blocks: int = 0,
) -> Truth:
    """Whether sparse retention caches the block at this position: a hit needs it at a multiple of
    `interval` tokens (0: at no multiple), where the same prompt resumes, or at the
    `shared_prefix_boundary`. The state of a Mamba group is needed like a window of two tokens
    (`reachable_block_mask`). With an EAGLE drafter, a prompt resumes `eagle_drop_tokens` tokens
    earlier, counted from its end or from its last token (`replay_boundaries`). In a group with
    layers of the drafter, `eagle_drop_blocks` is 1: a hit needs one block more."""
    periodic = serves_a_hit(block, window, block_size, max_(interval, hit_unit), eagle_drop_blocks)
    resent = needed_at(
        block,
        window,
        block_size,
        longest_hit_tokens(prompt, hit_unit, eagle_drop_tokens),
        eagle_drop_blocks,
    )
    if eagle_drop_tokens:
        last = longest_hit_tokens(prompt - 1, hit_unit, eagle_drop_tokens)
        resent = either(resent, needed_at(block, window, block_size, last, eagle_drop_blocks))
    parted = needed_at(block, window, block_size, shared_prefix_boundary, eagle_drop_blocks)
    parted = both(shared_prefix_boundary > 0, parted) if eagle_drop_blocks else parted
    return either(both(interval > 0, periodic), either(resent, parted))


def longest_hit_tokens(known: Num, hit_unit: Num, eagle_drop_tokens: int = 0) -> Num:
    """The longest prefix hit that leaves one token to compute: a multiple of `hit_unit` below
    `known` (`KVCacheManager.get_computed_blocks`). With an EAGLE drafter, `eagle_drop_tokens` more
    tokens (one block) must match. The drafter computes the last matched block again, because its
    layers hold for each token what depends on the next token (`drop_eagle_block`)."""
    if eagle_drop_tokens:
        return max_(round_down(known - eagle_drop_tokens, hit_unit), 0)
    return round_down(known - 1, hit_unit)


def tokens_to_cache(end: Num, known: Num) -> Num:
    """Tokens that may be cached after a step that ends at `end`: drafts may still be rejected
    (`KVCacheManager.allocate_slots`)."""
    return min_(end, known)


def cacheable_tokens(tokens: Num, hit_unit: Num, eagle_drop_tokens: int = 0) -> Num:
    """Leading tokens that can be part of a hit: full units, and with an EAGLE drafter one more
    block of `eagle_drop_tokens` tokens, which must match (`get_num_cacheable_tokens`)."""
    whole = round_down(tokens, hit_unit)
    if not eagle_drop_tokens:
        return whole
    return if_(whole > 0, min_(tokens, whole + eagle_drop_tokens), whole)


def hashed_tokens(tokens: Num, known: Num, ahead: Num) -> Num:
    """The leading `tokens`, as far as their blocks have hashes. A hash that covers `ahead` tokens
    after its block exists when these are `known` too (`get_request_block_hasher`)."""
    return min_(tokens, known - ahead)


def computed_after_drafts(end: Num, known: Num, accepted: Num) -> Num:
    """Computed tokens after a step that ended at `end`: the known tokens and the accepted drafts
    after them. Rejected drafts are subtracted (`update_from_output`)."""
    return min_(end, known + accepted)


def tokens_loaded_by_decode(prompt: Num, backoff: Num) -> Num:
    """Prompt tokens that D loads from P. D computes the rest again, so that D owns the last state
    (vllm#37310, `_get_remote_prefill_token_count`)."""
    return if_(prompt > backoff, prompt - backoff, prompt)


def output_tokens(max_tokens: Num, prefill: Truth) -> Num:
    """Tokens that an engine samples of an answer. P (`prefill`) samples one, which ends its
    prefill: the router sends P `max_tokens` 1, and D samples the answer (vllm#37310)."""
    return if_(prefill, 1, max_tokens)


def prompt_after_truncation(prompt: Num, backoff: Num, truncated: Truth) -> Num:
    """Prompt tokens that P computes. P stops where D starts. The prompt is truncated only once,
    however often the request is preempted (vllm#37310, `_p_side_truncated`)."""
    return if_(either(truncated, prompt <= backoff), prompt, prompt - backoff)


def blocks_counted_after_hit(hit_blocks: Num, skipped_blocks: Num) -> Num:  # noqa: ARG001
    """Number of cached blocks when a request gets its first blocks: the blocks of its local hit.
    Null placeholders before the tokens of a load are not cached yet (vllm#42547)."""
    return hit_blocks


def align_chunk(
    start: Num,
    tokens: Num,
    prefill_end: Num,
    known: Num,
    block_size: Num,
    chunk_limit: Num,
    shared_prefix_boundary: Num,
    eagle_drop_tokens: int = 0,
) -> Num:
    """Tokens left of a chunk after the align split; 0 if the chunk must wait for a larger budget.

    In align mode a Mamba state is kept only at the end of a chunk. A chunk that is not the last of
    its prefill therefore ends on a block boundary. No chunk passes the last boundary at which a
    later request could resume, or the `shared_prefix_boundary` (vllm#37898). A block wider than the
    budget of a step is computed in several chunks (`Scheduler._mamba_block_aligned_split`). With a
    drafter, a later request resumes `eagle_drop_tokens` tokens earlier (vllm#53945).
    """
    end = start + tokens
    boundary = round_down(end, block_size)
    on_grid = both(end < prefill_end, either(boundary > start, block_size <= chunk_limit))
    end = if_(on_grid, boundary, end)
    for stop in (
        ceil_div(start, block_size) * block_size,
        longest_hit_tokens(known, block_size, eagle_drop_tokens),
        shared_prefix_boundary,
    ):
        end = if_(both(start < stop, stop < end), stop, end)
    return if_(start < prefill_end, max_(end - start, 0), tokens)


def tail_chunk(start: Num, tokens: Num, boundary: Num, tail: Num) -> Num:
    """Tokens left of a chunk that must also end at `tail`, the last prefix of a prompt that has a
    hash. This applies if `tail` is inside a block, after the last `boundary` at which a state is
    cached. A state can be cached only at the end of a chunk
    (`Scheduler._mamba_block_aligned_split`)."""
    stops = all_of(boundary < tail, start < tail, tail < start + tokens)
    return if_(stops, tail - start, tokens)


def copies_of_hit(hit: Num, block_size: Num) -> Num:
    """Number of blocks that a group copies for a hit: the block inside which the hit ends, because
    the request will write it (`_has_partial_local_hit`)."""
    return blocks_for_tokens(hit, block_size) - full_blocks(hit, block_size)


def attention_blocks_predicted(
    end: Num, block_size: Num, held_blocks: Num, skipped_blocks: Num
) -> Num:
    """New blocks that an attention group allocates to reach `end` tokens. `held_blocks` are in its
    table already (or come from a hit); `skipped_blocks` may stay null
    (`SingleTypeKVCacheManager.get_num_blocks_to_allocate`)."""
    return max_(blocks_for_tokens(end, block_size) - max_(held_blocks, skipped_blocks), 0)


def state_blocks_predicted(
    end: Num, block_size: Num, held_blocks: Num, scratch: int = 0, fresh: int = 0
) -> Num:
    """New blocks that a Mamba group in align mode allocates to reach `end` tokens: one block for
    the running state if the table must grow, else none (`MambaManager.get_num_blocks_to_allocate`).
    After the running state the table has `scratch` blocks, one for the state after each draft. They
    move with the running state, and `fresh` of them are not allocated yet."""
    new_blocks = max_(blocks_for_tokens(end, block_size) + scratch - held_blocks, 0)
    return min_(new_blocks, 1 + fresh)


def state_is_used(hit_blocks: Num, left_behind: Num) -> Truth:
    """Whether a request uses the state at the end of a hit of `hit_blocks` blocks: there is one,
    and no load makes it superfluous. `left_behind` blocks are not needed after hit and load
    (`MambaManager.get_num_blocks_to_allocate`)."""
    return hit_blocks > left_behind


def blocks_from_queue(new_blocks: Num, idle_hit_blocks: Num) -> Num:
    """Blocks that leave the free queue at an admission: the new ones, and the blocks of its hit
    that no request holds (`SingleTypeKVCacheManager.get_num_blocks_to_allocate`)."""
    return new_blocks + idle_hit_blocks


def trim(
    local_first: Num,
    local_slots: Num,
    remote_first: Num,
    remote_slots: Num,
    equal_ratios: Truth = True,  # noqa: ARG001
) -> tuple[Num, Num, Num, Num]:
    """The parts of D's and P's attention lists that a transfer pairs: the positions in both lists.
    Lists are contiguous runs of kernel blocks; `*_first` is the position of the first entry in the
    sequence. The result is the same for unequal numbers of kernel blocks per block. Returns the
    slices `local[a:b]` and `remote[c:d]` as `(a, b, c, d)` (`_apply_prefix_caching`,
    vllm#42554)."""
    first = max_(local_first, remote_first)
    end = max_(min_(local_first + local_slots, remote_first + remote_slots), first)
    return (first - local_first, end - local_first, first - remote_first, end - remote_first)


def logical_block(kernel_block: Num, ratio: Num) -> tuple[Num, Num]:
    """The logical block of a kernel block, and the kernel block's index in it; a logical block has
    `ratio` kernel blocks."""
    block = div(kernel_block, ratio)
    return block, kernel_block - block * ratio


def attention_blocks_offered(tokens: Num, block_size: Num) -> Num:
    """Number of attention blocks that P has to offer after it computed `tokens` tokens: also the
    last one, which may not be full (vllm#21074)."""
    return blocks_for_tokens(tokens, block_size)


def state_slots_moved(slots: Num) -> Num:
    """Entries of a Mamba list that a transfer moves, counted from its end: the entry with the state
    (`get_exchange_clipped_blocks`, vllm#42554)."""
    return min_(slots, 1)


def tokens_offered(computed: Num, settled: Num, known: Num) -> Num:  # noqa: ARG001
    """Tokens whose KV a finished request offers: those that were computed and are its own. A
    step in flight may still compute, and of accepted drafts the last may have been cut off."""
    return min_(settled, known)


def held_tokens_loaded(held: Num, prompt: Num, whole: Truth) -> Num:
    """Tokens that P loads for a follow-up turn, of the `held` tokens that D computed before. If D
    has computed more tokens than this prompt has and all groups are full attention (`whole`), P
    takes the blocks of its own tokens. D no longer has an earlier window or Mamba state."""
    return if_(whole, min_(held, prompt), if_(held < prompt, held, 0))


def resumed_at(loaded: Num, prompt: Num) -> Num:
    """The first prompt token that D computes after a load of `loaded` tokens: D always computes the
    last token, to sample from it (`_update_waiting_for_remote_kv`)."""
    return min_(loaded, prompt - 1)


def needed_from_load(loaded: Num, prompt: Num) -> Num:
    """Number of computed tokens from which both engines derive the window blocks of a load: the
    tokens at which D resumes, not the loaded tokens. The token that D computes again reads one
    token further to the left."""
    return resumed_at(loaded, prompt)


def window_blocks_offered(window: Num, block_size: Num) -> Num:
    """Number of blocks that P offers of a sliding-window group: the window, and one block for its
    unaligned start (`get_exchange_clipped_blocks`)."""
    return blocks_for_tokens(window, block_size) + 1
