"""The align split: where a chunk of a prompt may end when Mamba states are cached at boundaries.

The claims hold for a request that has a next token to compute (`start < known`) and is in its
prefill (`start < prefill_end`). The shared prefix boundary, like every hit, is a multiple of the
block size.
"""

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import (
    Num,
    Truth,
    all_of,
    any_of,
    both,
    either,
    implies,
    min_,
    not_,
    round_down,
)
from kvproof.model.arithmetic.ranges import at_least
from kvproof.proofs.obligation import Claim, obligation

CHUNK = {
    "start": at_least(0),
    "tokens": at_least(1),
    "prefill_end": at_least(1),
    "known": at_least(1),
    "block_size": at_least(1),
    "chunk_limit": at_least(1),
    "boundary_blocks": at_least(0),
}
SOURCE = "Scheduler._mamba_block_aligned_split"


class Chunk:
    """A chunk before and after the split."""

    def __init__(self, v: dict[str, Num]) -> None:
        self.v = v
        self.shared_prefix_boundary = v["boundary_blocks"] * v["block_size"]
        self.requested_end = v["start"] + v["tokens"]
        self.tokens = self.split(v["tokens"])
        self.end = v["start"] + self.tokens
        self.in_prefill = all_of(
            v["start"] < v["prefill_end"],
            v["prefill_end"] <= v["known"],
            self.requested_end <= v["known"],
            v["tokens"] <= v["chunk_limit"],
        )

    def split(self, tokens: Num) -> Num:
        """The number of tokens that the rule leaves of a chunk of `tokens` tokens."""
        v = self.v
        return counts.align_chunk(
            v["start"],
            tokens,
            v["prefill_end"],
            v["known"],
            v["block_size"],
            v["chunk_limit"],
            self.shared_prefix_boundary,
        )

    def ends_well(self, end: Num) -> Truth:
        """Whether this end is a block boundary, is the end of the prefill, or lies inside a block
        that is crossed in pieces: the block is wider than the budget of a whole step, and the
        requested tokens reach no boundary."""
        v = self.v
        on_boundary = round_down(end, v["block_size"]) == end
        reached = round_down(self.requested_end, v["block_size"])
        in_pieces = both(v["block_size"] > v["chunk_limit"], reached <= v["start"])
        return any_of(on_boundary, end >= v["prefill_end"], in_pieces)

    def passes_a_stop(self, end: Num) -> Truth:
        """Whether the last boundary at which a later request can resume, or the shared prefix
        boundary, is strictly inside a chunk with this end."""
        start = self.v["start"]
        last = counts.longest_hit_tokens(self.v["known"], self.v["block_size"])
        return any_of(
            *(both(start < stop, stop < end) for stop in (last, self.shared_prefix_boundary))
        )

    def stays_in_its_block(self, end: Num) -> Truth:
        """Whether a chunk with this end, if it starts inside a block, ends there too."""
        block_start = round_down(self.v["start"], self.v["block_size"])
        inside = self.v["start"] > block_start
        return implies(inside, end <= block_start + self.v["block_size"])


@obligation(
    "the align split never lengthens a chunk",
    for_all=CHUNK,
    origin=SOURCE,
    killed_by="chunk_rounds_up",
)
def chunk_within_requested(**v: Num) -> Claim:
    """The number of tokens left is also never negative."""
    chunk = Chunk(v)
    return Claim(both(chunk.tokens >= 0, chunk.tokens <= v["tokens"]))


@obligation(
    "a chunk that may use the whole budget of a step always makes progress",
    for_all={name: r for name, r in CHUNK.items() if name != "tokens"},
    origin=SOURCE,
    killed_by="wide_block_never_crossed",
)
def whole_budget_makes_progress(**v: Num) -> Claim:
    """The claim holds for every block size, also for blocks wider than the budget: the first
    request of a step is never stuck. The only precondition is a budget of at least one token."""
    v = {**v, "tokens": min_(v["known"] - v["start"], v["chunk_limit"])}
    chunk = Chunk(v)
    return Claim(chunk.tokens >= 1, given=chunk.in_prefill)


@obligation(
    "a chunk waits if and only if it reaches neither a boundary nor the end of its prefill",
    for_all=CHUNK,
    origin=SOURCE,
    killed_by="no_align_split",
)
def chunk_waits_only_for_a_boundary(**v: Num) -> Claim:
    """The exact precondition of progress: the tokens reach a block boundary or the end of the
    prefill, or a block is wider than the budget of a whole step, so that waiting cannot help."""
    chunk = Chunk(v)
    goes_on = any_of(
        chunk.requested_end >= v["prefill_end"],
        round_down(chunk.requested_end, v["block_size"]) > v["start"],
        v["block_size"] > v["chunk_limit"],
    )
    return Claim((chunk.tokens >= 1) == goes_on, given=chunk.in_prefill)


@obligation(
    "a chunk ends on a block boundary, or ends its prefill, or crosses a block in pieces",
    for_all=CHUNK,
    origin="vllm#37898",
    killed_by="no_align_split",
)
def chunk_ends_on_boundary(**v: Num) -> Claim:
    """In align mode a state survives only where a chunk ends, and is cached only on a boundary."""
    chunk = Chunk(v)
    ends = either(chunk.tokens == 0, chunk.ends_well(chunk.end))
    return Claim(ends, given=chunk.in_prefill)


@obligation(
    "no chunk passes a shared prefix boundary or the last boundary where a request can resume",
    for_all=CHUNK,
    origin="vllm#37898",
    killed_by="no_align_split",
)
def chunk_stops_where_others_resume(**v: Num) -> Claim:
    """A boundary strictly inside the chunk would get no state."""
    chunk = Chunk(v)
    return Claim(not_(chunk.passes_a_stop(chunk.end)), given=chunk.in_prefill)


@obligation(
    "a chunk that starts inside a block does not leave it",
    for_all=CHUNK,
    origin=SOURCE,
    killed_by="no_align_split",
)
def chunk_closes_its_block_first(**v: Num) -> Claim:
    """The state at the block's end must be written before the next block begins."""
    chunk = Chunk(v)
    return Claim(chunk.stays_in_its_block(chunk.end), given=chunk.in_prefill)


@obligation(
    "the align split does not change a chunk that meets the conditions of the claims above",
    for_all=CHUNK,
    origin=SOURCE,
    killed_by="shared_prefix_boundary_inside_a_block",
)
def legal_chunk_is_left_alone(**v: Num) -> Claim:
    """The conditions are those of the three obligations above, so the split requires nothing else.
    Its result meets them, so a second split does not change it: a recorded chunk is legal if and
    only if the split does not change it."""
    chunk = Chunk(v)
    legal = all_of(
        chunk.ends_well(chunk.requested_end),
        not_(chunk.passes_a_stop(chunk.requested_end)),
        chunk.stays_in_its_block(chunk.requested_end),
    )
    return Claim(chunk.tokens == v["tokens"], given=both(chunk.in_prefill, legal))
