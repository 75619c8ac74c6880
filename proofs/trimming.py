"""Trimming: D and P pair equal positions of a sequence, and all common ones (vllm#42554).

Positions count kernel blocks, which hold the same number of tokens on both sides.
"""

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num, all_of, both, either, max_
from kvproof.model.arithmetic.ranges import Natural, Positive
from kvproof.proofs.obligation import Claim, obligation


@obligation(
    "trimming leaves as many local slots as remote ones",
    origin="vllm#42554",
    killed_by="last_zero_blocks_yield_all",
)
def trim_equal_counts(
    local_first: Natural, local_slots: Natural, remote_first: Natural, remote_slots: Natural
) -> Claim:
    """The worker copies slot by slot, so lists of unequal length are an error or worse."""
    a, b, c, d = counts.trim(local_first, local_slots, remote_first, remote_slots)
    return Claim(max_(b - a, 0) == max_(d - c, 0))


@obligation(
    "trimming pairs a local slot with the remote slot of the same position, within both lists",
    origin="vllm#42554",
    killed_by="front_trim",
)
def trim_equal_positions(
    local_first: Natural, local_slots: Natural, remote_first: Natural, remote_slots: Natural
) -> Claim:
    """The claim is about lists with at least one pair."""
    a, b, c, d = counts.trim(local_first, local_slots, remote_first, remote_slots)
    inside = all_of(a >= 0, b <= local_slots, c >= 0, d <= remote_slots)
    aligned = local_first + a == remote_first + c
    return Claim(either(b <= a, both(inside, aligned)))


@obligation(
    "trimming pairs exactly the positions that both lists hold",
    origin="vllm#42554",
    killed_by="front_trim",
)
def trim_covers_both(
    local_first: Natural,
    local_slots: Natural,
    remote_first: Natural,
    remote_slots: Natural,
    position: Natural,
) -> Claim:
    """So D receives every block that it can."""

    def between(first: Num, end: Num) -> Num:
        return both(first <= position, position < end)

    a, b, c, d = counts.trim(local_first, local_slots, remote_first, remote_slots)
    held = both(
        between(local_first, local_first + local_slots),
        between(remote_first, remote_first + remote_slots),
    )
    ours = between(local_first + a, local_first + b)
    theirs = between(remote_first + c, remote_first + d)
    return Claim(both(ours == held, theirs == held))


@obligation(
    "trimming pairs equal tokens also where the logical blocks of P and D differ in size",
    origin="vllm#42554",
    killed_by="end_trim_across_ratios",
)
def trim_equal_tokens(
    local_blocks_before: Natural,
    local_slots: Natural,
    local_ratio: Positive,
    remote_blocks_before: Natural,
    remote_slots: Natural,
    remote_ratio: Positive,
    kernel_tokens: Positive,
) -> Claim:
    """`*_ratio` is kernel blocks per logical block, `*_blocks_before` the logical blocks in front
    of the list. The first tokens paired are the same on both sides, and so are the last."""
    local_first = local_blocks_before * local_ratio
    remote_first = remote_blocks_before * remote_ratio
    equal = local_ratio == remote_ratio
    a, b, c, d = counts.trim(local_first, local_slots, remote_first, remote_slots, equal)
    first = (local_first + a) * kernel_tokens == (remote_first + c) * kernel_tokens
    end = (local_first + b) * kernel_tokens == (remote_first + d) * kernel_tokens
    return Claim(either(both(b <= a, d <= c), both(first, end)))


@obligation(
    "trimming pairs the one slot with the state of two Mamba lists, on both sides or on neither",
    origin="vllm#42554",
    killed_by="ssm_placeholders_not_trimmed",
)
def one_state_is_paired(local_slots: Positive, remote_slots: Natural) -> Claim:
    """D has a list only if it loads; P's list may have placeholders before the state."""
    ours = counts.state_slots_moved(local_slots)
    theirs = counts.state_slots_moved(remote_slots)
    return Claim(all_of(ours == 1, theirs <= ours, (theirs == 0) == (remote_slots == 0)))
