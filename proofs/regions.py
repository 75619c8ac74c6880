"""The exact region in which a released or proposed rule is right.

Each claim compares the rule with the spec and states for which numbers they agree.
"""

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import all_of, both, if_, implies, max_, not_
from kvproof.model.arithmetic.ranges import Bit, Natural, Positive
from kvproof.model.faults.states import null_blocks_counted_as_cached
from kvproof.model.faults.transfers import end_trim_across_ratios
from kvproof.proofs.obligation import Claim, obligation


@obligation(
    "lists cut by count from the end are right if and only if both tables end at the same token",
    origin="vllm#50558",
    killed_by="front_trim",
)
def end_trim_is_right_where(
    tokens: Positive, hit_blocks: Natural, local_ratio: Positive, remote_ratio: Positive
) -> Claim:
    """`tokens` and both ratios count kernel blocks. D hits `hit_blocks` blocks and loads the rest;
    P lists all its blocks. With equal ratios both tables end at the same token; with unequal ratios
    they do if neither side has padding that the other side lacks. The released rule requires that
    D's list is not longer than P's."""
    ends = tuple(
        counts.blocks_for_tokens(tokens, ratio) * ratio for ratio in (local_ratio, remote_ratio)
    )
    first = hit_blocks * local_ratio
    local = ends[0] - first
    ours = counts.trim(first, local, 0, ends[1], local_ratio == remote_ratio)
    released = end_trim_across_ratios(first, local, 0, ends[1], local_ratio == remote_ratio)
    same = all_of(*(a == b for a, b in zip(ours, released, strict=True)))
    return Claim(same == (ends[0] == ends[1]), given=both(local > 0, local <= ends[1]))


@obligation(
    "the number of hit blocks before slicing is the table's length for full attention, and for a "
    "window if and only if at most block size + window - 2 tokens come from the connector",
    origin="vllm#42547",
    killed_by="null_blocks_counted_as_cached",
)
def counting_before_slicing_is_no_change_where(
    hit_blocks: Natural, external: Natural, block_size: Positive, window: Positive
) -> Claim:
    """The pull request states that it changes nothing for full attention and for sliding windows.
    This is true for full attention, and false for a window once a load is longer than the limit of
    this claim."""
    total = hit_blocks * block_size + external
    skipped = counts.full_blocks(counts.tokens_skipped_by_window(total, window), block_size)
    full = counts.blocks_counted_after_hit(hit_blocks, 0) == null_blocks_counted_as_cached(
        hit_blocks, 0
    )
    slid = counts.blocks_counted_after_hit(hit_blocks, skipped) == null_blocks_counted_as_cached(
        hit_blocks, skipped
    )
    return Claim(both(full, slid == (external <= block_size + window - 2)))


@obligation(
    "without a connector a window's hit has as many null entries as blocks behind the window",
    origin="vllm#42547",
    killed_by="window_hit_one_block_short",
)
def null_in_a_hit_is_what_is_skipped(
    hit_blocks: Natural, block_size: Positive, window: Positive
) -> Claim:
    """The pull request also states this, and it is true."""
    need = counts.window_blocks_for_hit(window, block_size)
    skipped = counts.tokens_skipped_by_window(hit_blocks * block_size, window)
    return Claim(max_(hit_blocks - need, 0) == counts.full_blocks(skipped, block_size))


@obligation(
    "an attention group takes what is predicted, for every mix of hit and external tokens",
    origin="vllm#46892",
    killed_by="prediction_forgets_hits",
)
def attention_takes_what_is_predicted(
    hit_blocks: Natural,
    external: Positive,
    block_size: Positive,
    left_behind: Natural,
    idle: Natural,
) -> Claim:
    """The first `left_behind` blocks are null, up to the end of the tokens; of the kept hit blocks,
    `idle` are free now and leave the queue too."""
    total = hit_blocks * block_size + external
    kept = max_(hit_blocks - left_behind, 0)
    table = max_(hit_blocks, left_behind)
    taken = counts.blocks_for_tokens(total, block_size) - table + idle
    predicted = counts.attention_blocks_predicted(total, block_size, hit_blocks, left_behind)
    sound = both(left_behind * block_size < total, idle <= kept)
    return Claim(counts.blocks_from_queue(predicted, idle) == taken, given=sound)


@obligation(
    "a Mamba group takes what is predicted, for every mix of hit and external tokens",
    origin="vllm#46892",
    killed_by="superseded_state_reserved",
)
def state_takes_what_is_predicted(
    own_blocks: Natural, beyond: Positive, block_size: Positive, idle: Bit
) -> Claim:
    """The last of the `own_blocks` that the group hit itself has a state; the request ends `beyond`
    tokens after them. If a loaded state supersedes this state, its block is not taken. The released
    rule counts this block, which is one too many if and only if the block is free now."""
    total = own_blocks * block_size + beyond
    left = counts.full_blocks(counts.tokens_skipped_by_state(total), block_size)
    has_state = own_blocks > 0
    kept = both(has_state, own_blocks - 1 >= left)
    table = max_(own_blocks, left)
    new = counts.blocks_for_tokens(total, block_size) - table
    taken = new + if_(kept, idle, 0)
    reserved = both(has_state, counts.state_is_used(own_blocks, left))
    predicted = counts.state_blocks_predicted(total, block_size, own_blocks)
    predicted = counts.blocks_from_queue(predicted, if_(reserved, idle, 0))
    return Claim(predicted == taken, given=implies(not_(has_state), idle == 0))
