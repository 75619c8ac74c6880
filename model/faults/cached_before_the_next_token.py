"""A block was cached before the token after it was known, which its hash covers: the drafter may
compute the block with another token than the hash says (vllm#50438)."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.fault import Fault


def all_tokens(tokens: Num, known: Num, ahead: Num) -> Num:  # noqa: ARG001
    """Whatever comes after them."""
    return tokens


FAULT = Fault(
    name="cached_before_the_next_token",
    origin="vllm#50438",
    mistake="a block is cached before the token after it is known, which its hash covers",
    replaces={"arithmetic.counts:hashed_tokens": all_tokens},
    breaks=("drafter_holds_its_key",),
    trace_events=4,
    cluster="lookahead-hashes",
)
