"""Found by kvproof in vLLM 0.32.0. D loads all N prompt tokens of a model with a sliding window and
computes the last one again, to sample from it. What its window needs is judged by N computed tokens
on both sides; but token N, computed again, looks back one token further. Where a block ends exactly
there, that block is gone on P and null on D, and D attends to the null block."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.claims import claims
from kvproof.model.faults.fault import Fault


def by_loaded_tokens(loaded: Num, prompt: Num) -> Num:  # noqa: ARG001
    """As if the next token were the one after those loaded."""
    return loaded


FAULT = Fault(
    name="window_of_loaded_tokens",
    origin="kvproof, vLLM 0.32.0",
    mistake="a window is judged by the tokens loaded, not by the token that is computed again",
    replaces=("needed_from_load", by_loaded_tokens),
    breaks=("null_block_is_nobody",),
    cluster="pd-window",
    trace_events=7,
    refutes=claims("window", "null_is_not_needed"),
)
