"""The arithmetic of KV blocks, written once.

Every function takes and returns ints or Z3 terms alike (see `algebra`). Units are in the names:
`tokens`, `blocks` (logical KV blocks of one group), `slots` (entries of a transfer list, in kernel
blocks). Nothing else in kvproof computes these numbers.
"""

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
    """Blocks that hold `tokens` tokens."""
    return ceil_div(tokens, block_size)


def full_blocks(tokens: Num, block_size: Num) -> Num:
    """Blocks that `tokens` tokens fill to the last slot; only these can be cached."""
    return div(tokens, block_size)


def settled_tokens(computed: Num, in_flight: Num) -> Num:
    """Computed tokens whose steps have ended, where `in_flight` tokens are still being computed
    (`KVCacheManager.allocate_slots`: the processed-token basis, vllm#47728)."""
    return max_(computed - in_flight, 0)


def tokens_skipped_by_window(computed: Num, window: Num) -> Num:
    """Leading tokens that the next token no longer attends to under a sliding window.

    The next token sees itself and `window - 1` tokens before it
    (`SlidingWindowManager.get_num_skipped_tokens`).
    """
    return max_(computed - window + 1, 0)


def tokens_skipped_by_state(computed: Num) -> Num:
    """Tokens whose Mamba state is no longer needed: all but the last computed one
    (`MambaManager.get_num_skipped_tokens`)."""
    return max_(computed - 1, 0)


def window_blocks_for_hit(window: Num, block_size: Num) -> Num:
    """Blocks before a boundary that must be resident for a sliding-window hit there."""
    return ceil_div(window - 1, block_size)


def serves_a_hit(
    block: Num, window: Num, block_size: Num, hit_unit: Num, eagle_drop_blocks: int = 0
) -> Truth:
    """Whether the block at this position can serve a sliding-window hit at some multiple of
    `hit_unit` tokens. A block that cannot is not worth hashing
    (`SlidingWindowManager.reachable_block_mask`, dense retention). `eagle_drop_blocks` is 1 where a
    hit is served only if the block after it matches too (vllm#44082)."""
    blocks_per_unit = div(hit_unit, block_size)
    # Z3 does not get far with `block - 0`.
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
    """Whether a sliding-window hit of `boundary` tokens needs the block at this position, or one of
    `eagle_drop_blocks` blocks after the hit, which must match too."""
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
    `interval` tokens (0: at none), where the prompt resumes when it is sent again, or at the
    `junction` where prompts were seen to part. The state of a Mamba group is needed as a window of
    two tokens would be (`reachable_block_mask`).

    With a drafter of the EAGLE kind a prompt resumes `eagle_drop_tokens` tokens earlier, and may do
    so from its end or from its last token on (`replay_boundaries`). In a group that the drafter has
    layers in, `eagle_drop_blocks` is 1: a hit needs one block more."""
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
    """The longest prefix hit that leaves a token to compute: a multiple of `hit_unit` below
    `known` (`KVCacheManager.get_computed_blocks`). With a drafter of the EAGLE kind so many tokens
    as a block has (`eagle_drop_tokens`) must match after it: it computes the last matched block
    again, for what its layers hold of a token depends on the next one (`drop_eagle_block`)."""
    if eagle_drop_tokens:
        return max_(round_down(known - eagle_drop_tokens, hit_unit), 0)
    return round_down(known - 1, hit_unit)


def tokens_to_cache(end: Num, known: Num) -> Num:
    """Tokens of a step that ends at `end` which may be cached: drafts are not known to be right
    (`KVCacheManager.allocate_slots`)."""
    return min_(end, known)


def cacheable_tokens(tokens: Num, hit_unit: Num, eagle_drop_tokens: int = 0) -> Num:
    """Leading tokens a hit can be about: whole units, and with a drafter of the EAGLE kind one more
    block, of `eagle_drop_tokens` tokens, that must match (`get_num_cacheable_tokens`)."""
    whole = round_down(tokens, hit_unit)
    return (
        if_(whole > 0, min_(tokens, whole + eagle_drop_tokens), 0) if eagle_drop_tokens else whole
    )


def hashed_tokens(tokens: Num, known: Num, ahead: Num) -> Num:
    """The leading `tokens`, as far as their blocks have hashes. A hash that covers `ahead` tokens
    after its block exists when these are `known` too (`get_request_block_hasher`)."""
    return min_(tokens, known - ahead)


def computed_after_drafts(end: Num, known: Num, accepted: Num) -> Num:
    """Computed tokens after a step that ended at `end`: those that were known and the accepted
    drafts after them. The rejected ones are taken back (`update_from_output`)."""
    return min_(end, known + accepted)


def tokens_loaded_by_decode(prompt: Num, backoff: Num) -> Num:
    """Prompt tokens D loads from P. D recomputes the rest, so that it owns the last state
    (vllm#37310, `_get_remote_prefill_token_count`)."""
    return if_(prompt > backoff, prompt - backoff, prompt)


def prompt_after_truncation(prompt: Num, backoff: Num, truncated: Truth) -> Num:
    """Prompt tokens P prefills. P stops where D starts, and is shortened once only, however often
    the request is preempted and scheduled again (vllm#37310, `_p_side_truncated`)."""
    return if_(truncated, prompt, tokens_loaded_by_decode(prompt, backoff))


def blocks_counted_after_hit(hit_blocks: Num, skipped_blocks: Num) -> Num:  # noqa: ARG001
    """The cached-block counter when a request gets its first blocks: the blocks of its local hit.
    Null placeholders in front of tokens a connector brings are not cached yet (vllm#42547)."""
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
    """Tokens left of a chunk after the align split, 0 if it must wait for a larger budget.

    In align mode a Mamba state survives only where a chunk ends. So a chunk that is not the last
    of its prefill ends on a block boundary; no chunk runs past the last boundary a later request
    could resume at, nor past `shared_prefix_boundary`, where two prompts were seen to part
    (vllm#37898). A block wider than a whole chunk is crossed in pieces
    (`Scheduler._mamba_block_aligned_split`). With a drafter a later request could resume only a
    block earlier (`eagle_drop_tokens`, vllm#53945).
    """
    end = start + tokens
    boundary = round_down(end, block_size)
    on_grid = both(end < prefill_end, either(boundary > start, block_size <= chunk_limit))
    end = if_(on_grid, boundary, end)
    inside_block = start - round_down(start, block_size) > 0
    next_boundary = round_down(start, block_size) + block_size
    for applies, stop in (
        (inside_block, next_boundary),
        (True, longest_hit_tokens(known, block_size, eagle_drop_tokens)),
        (True, shared_prefix_boundary),
    ):
        end = if_(both(applies, both(start < stop, stop < end)), stop, end)
    return if_(start < prefill_end, max_(end - start, 0), tokens)


def tail_chunk(start: Num, tokens: Num, boundary: Num, tail: Num) -> Num:
    """Tokens left of a chunk that also ends at `tail`, the last prefix of a prompt that has a hash,
    where that is inside a block, after the last `boundary` at which a state is cached. A state can
    be cached only where a chunk ends (`Scheduler._mamba_block_aligned_split`)."""
    stops = all_of(boundary < tail, start < tail, tail < start + tokens)
    return if_(stops, tail - start, tokens)


def copies_of_hit(hit: Num, block_size: Num) -> Num:
    """Blocks a group copies for a hit: the one that the hit ends inside, which the request will
    write (`_has_partial_local_hit`)."""
    return blocks_for_tokens(hit, block_size) - full_blocks(hit, block_size)


def attention_blocks_predicted(
    end: Num, block_size: Num, held_blocks: Num, skipped_blocks: Num
) -> Num:
    """New blocks an attention group takes to reach `end` tokens, given the blocks its table
    holds already (or gets from a hit) and those it may leave null
    (`SingleTypeKVCacheManager.get_num_blocks_to_allocate`)."""
    return max_(blocks_for_tokens(end, block_size) - max_(held_blocks, skipped_blocks), 0)


def state_blocks_predicted(
    end: Num, block_size: Num, held_blocks: Num, scratch: int = 0, fresh: int = 0
) -> Num:
    """New blocks a Mamba group in align mode takes to reach `end` tokens: one for the running
    state where the table must grow, none where it need not
    (`MambaManager.get_num_blocks_to_allocate`). After the running state the table has `scratch`
    blocks, for a state after each draft; they move with it, and `fresh` of them are still to be
    taken."""
    new_blocks = max_(blocks_for_tokens(end, block_size) + scratch - held_blocks, 0)
    return min_(new_blocks, 1 + fresh)


def trim(
    local_first: Num,
    local_slots: Num,
    remote_first: Num,
    remote_slots: Num,
    equal_ratios: Truth = True,  # noqa: ARG001
) -> tuple[Num, Num, Num, Num]:
    """The parts of D's and P's attention lists that a transfer pairs: the positions in both.

    Lists are contiguous runs of kernel blocks; `*_first` is the position of the first one in the
    sequence. Whether P and D put equally many into a block makes no difference. Returns the slices
    `local[a:b]` and `remote[c:d]` as `(a, b, c, d)` (`_apply_prefix_caching`, vllm#42554).
    """
    first = max_(local_first, remote_first)
    end = max_(min_(local_first + local_slots, remote_first + remote_slots), first)
    return (first - local_first, end - local_first, first - remote_first, end - remote_first)


def logical_block(kernel_block: Num, ratio: Num) -> tuple[Num, Num]:
    """The logical block a kernel block is part of, and which part it is, where a logical block is
    `ratio` kernel blocks in a row."""
    block = div(kernel_block, ratio)
    return block, kernel_block - block * ratio


def state_slots_moved(slots: Num) -> Num:
    """Entries of a Mamba list that take part in a transfer, counted from its end: the one that
    holds the state (`get_exchange_clipped_blocks`, vllm#42554)."""
    return min_(slots, 1)


def tokens_offered(computed: Num, settled: Num, known: Num) -> Num:  # noqa: ARG001
    """Tokens whose KV a finished request offers: those that were computed and are its own. A
    step in flight may still compute, and of accepted drafts the last may have been cut off."""
    return min_(settled, known)


def held_tokens_loaded(held: Num, prompt: Num, whole: Truth) -> Num:
    """Tokens P loads for a follow-up turn of the `held` ones that D computed before. Where D went
    further than this prompt, P takes the blocks of its own tokens, if attention looks at all of
    them (`whole`): what a window or a state was before D went on, D has no longer."""
    return if_(whole, min_(held, prompt), if_(held < prompt, held, 0))


def resumed_at(loaded: Num, prompt: Num) -> Num:
    """The first prompt token D computes after loading `loaded` tokens: it always computes the last
    one, to sample from it (`_update_waiting_for_remote_kv`)."""
    return min_(loaded, prompt - 1)


def needed_from_load(loaded: Num, prompt: Num) -> Num:
    """Computed tokens by which both sides judge what a window no longer needs of a load: those D
    resumes at, not those it loads. The token it computes again looks back one token further."""
    return resumed_at(loaded, prompt)


def window_blocks_offered(window: Num, block_size: Num) -> Num:
    """Blocks P offers of a sliding-window group: the window, and one for its unaligned start
    (`get_exchange_clipped_blocks`)."""
    return blocks_for_tokens(window, block_size) + 1
