"""What must be true of a hand-over's counts, for all sizes: inductive, all of them together."""

from collections.abc import Callable, Mapping

from kvproof.model.arithmetic.algebra import Truth, all_of, any_of, both, either, implies
from kvproof.model.counting_abstraction.transfer import (
    LOST,
    NO_HANDOVER,
    NONE,
    OFFERED,
    READING,
    TELLING,
    Handover,
    Sizes,
    blocks_offered,
)
from kvproof.model.reference.default_rules import REFERENCE

Claim = Callable[[Sizes, Handover], Truth]


def sizes_allowed(kind: str, sizes: Sizes) -> Truth:
    """The sizes there are: P and D leave off at the same token (`same_backoff`), one before the end
    where a Mamba state is handed over (vllm#37310)."""
    return all_of(
        *(n >= 1 for n in (sizes.kernel, sizes.p_ratio, sizes.d_ratio, sizes.window)),
        both(sizes.d_backoff >= 0, sizes.d_backoff <= 1),
        sizes.p_backoff == sizes.d_backoff,
        either(kind != "mamba", sizes.d_backoff == 1),
    )


def counts_are_none_when_over(_sizes: Sizes, h: Handover) -> Truth:
    """A hand-over that has ended has no counts; one under way has at least a prompt token."""
    nothing = all_of(*(a == b for a, b in zip(h, NO_HANDOVER, strict=True)))
    there = all_of(h.phase > NONE, h.phase <= LOST, h.submitted_prompt_tokens >= 1, h.pinned <= 1)
    return both(all_of(*(n >= 0 for n in h)), either(nothing, there))


def delivered_is_loaded(sizes: Sizes, h: Handover) -> Truth:
    """What P delivers is what D may load; what D hits and loads is what P delivered
    (vllm#37310)."""
    offered = REFERENCE.tokens_loaded_by_decode(h.submitted_prompt_tokens, sizes.d_backoff)
    return both(
        either(h.phase == NONE, h.delivered == offered),
        implies(h.phase == READING, h.hit + h.loaded == h.delivered),
    )


def lists_are_equally_long(_sizes: Sizes, h: Handover) -> Truth:
    """After trimming both sides name equally many entries (vllm#42554)."""
    return h.pairs_local == h.pairs_remote


def lists_start_together(_sizes: Sizes, h: Handover) -> Truth:
    """While P keeps its blocks, both trimmed lists start at the same position of the sequence,
    whatever the numbers of kernel blocks to a block are on P and D (vllm#50558)."""
    return implies(h.pinned == 1, h.first_local == h.first_remote)


def blocks_outlive_their_readers(_sizes: Sizes, h: Handover) -> Truth:
    """P keeps its blocks as long as anybody may read them: the lease outlives the read."""
    return implies(any_of(*(h.phase == p for p in (OFFERED, READING, TELLING))), h.pinned == 1)


def handover_claims(kind: str) -> Mapping[str, Claim]:
    """The claims about a hand-over in a group of this kind, by name."""

    def all_is_offered(sizes: Sizes, h: Handover) -> Truth:
        """P offers all blocks a reader can need: of a window those it looks at, of a state one."""
        wanted = blocks_offered(kind, REFERENCE, sizes, h.delivered)
        return either(h.phase == NONE, h.remote == wanted)

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
