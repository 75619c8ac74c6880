"""The claims about a KV transfer's counts, for all sizes. Together they are inductive."""

from collections.abc import Callable, Mapping

from kvproof.model.arithmetic.algebra import (
    Num,
    Truth,
    all_of,
    both,
    ceil_div,
    either,
    if_,
    implies,
    min_,
)
from kvproof.model.counting_abstraction.transfer import (
    NO_TRANSFER,
    TransferCounts,
    TransferSizes,
    in_phase,
)
from kvproof.model.phases import Phase, Way, phases_of

Claim = Callable[[TransferSizes, TransferCounts], Truth]

UNDER_WAY = phases_of(Way.PULL) - {Phase.NONE}
READABLE = (Phase.OFFERED, Phase.READING, Phase.RELEASING)
"""Phases in which D may read P's blocks, now or later."""


def blocks_wanted(kind: str, sizes: TransferSizes, tokens: Num) -> Num:
    """Blocks that P must offer of `tokens` tokens: the block with the state, the blocks of all
    tokens, or those of a window that starts anywhere in a block."""
    blocks = ceil_div(tokens, sizes.p_block)
    if kind == "mamba":
        return min_(blocks, 1)
    return min_(blocks, ceil_div(sizes.window, sizes.p_block) + 1) if kind == "window" else blocks


def agreed_tokens(prompt: Num, backoff: Num) -> Num:
    """Prompt tokens that P computes and D loads. The claims say it for themselves: a mistake in
    `counts` must not be in both."""
    return if_(prompt > backoff, prompt - backoff, prompt)


def sizes_allowed(kind: str, sizes: TransferSizes) -> Truth:
    """The possible sizes: P and D stop at the same prompt token (`same_backoff`), one token before
    the end where a Mamba state is transferred (vllm#37310)."""
    return all_of(
        *(n >= 1 for n in (sizes.kernel, sizes.p_ratio, sizes.d_ratio, sizes.window)),
        both(sizes.d_backoff >= 0, sizes.d_backoff <= 1),
        sizes.p_backoff == sizes.d_backoff,
        either(kind != "mamba", sizes.d_backoff == 1),
    )


def counts_are_none_when_over(_sizes: TransferSizes, t: TransferCounts) -> Truth:
    """A transfer that has ended has no counts; a transfer in progress has at least one prompt
    token."""
    nothing = all_of(*(a == b for a, b in zip(t, NO_TRANSFER, strict=True)))
    there = all_of(in_phase(t, UNDER_WAY), t.submitted_prompt_tokens >= 1, t.pinned <= 1)
    return both(all_of(*(n >= 0 for n in t)), either(nothing, there))


def delivered_is_loaded(sizes: TransferSizes, t: TransferCounts) -> Truth:
    """P delivers exactly the tokens that D may load; D's hit and load are together what P delivered
    (vllm#37310)."""
    offered = agreed_tokens(t.submitted_prompt_tokens, sizes.d_backoff)
    return both(
        either(in_phase(t, (Phase.NONE,)), t.delivered == offered),
        implies(in_phase(t, (Phase.READING,)), t.hit + t.loaded == t.delivered),
    )


def lists_are_equally_long(_sizes: TransferSizes, t: TransferCounts) -> Truth:
    """After trimming, both lists have the same number of entries (vllm#42554)."""
    return t.pairs_local == t.pairs_remote


def lists_start_together(_sizes: TransferSizes, t: TransferCounts) -> Truth:
    """While P keeps its blocks, both trimmed lists start at the same position of the sequence,
    whatever the numbers of kernel blocks per block on P and D (vllm#50558)."""
    return implies(t.pinned == 1, t.first_local == t.first_remote)


def blocks_outlive_their_readers(_sizes: TransferSizes, t: TransferCounts) -> Truth:
    """P keeps its blocks as long as D may read them: the lease does not end before the read."""
    return implies(in_phase(t, READABLE), t.pinned == 1)


def transfer_claims(kind: str) -> Mapping[str, Claim]:
    """The claims about a transfer in a group of this kind, by name."""

    def all_is_offered(sizes: TransferSizes, t: TransferCounts) -> Truth:
        """P offers all blocks that D can need: of a window its last blocks, of a state one
        block."""
        wanted = blocks_wanted(kind, sizes, t.delivered)
        return either(in_phase(t, (Phase.NONE,)), t.remote == wanted)

    claims = [
        counts_are_none_when_over,
        delivered_is_loaded,
        all_is_offered,
        lists_are_equally_long,
        blocks_outlive_their_readers,
    ]
    if kind != "mamba":
        claims.append(lists_start_together)
    return {claim.__name__: claim for claim in claims}
