"""vLLM 0.32.0, found by kvproof. D loads all N prompt tokens of a model with a sliding window and
computes the last token again, to sample from it. Both sides compute the needed window from N
computed tokens, but token N, computed again, reads one token further to the left. If a block ends
exactly there, that block is freed on P and null on D, and D attends to the null block."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.claims import claims
from kvproof.model.faults.fault import Fault


def by_loaded_tokens(loaded: Num, prompt: Num) -> Num:  # noqa: ARG001
    """The tokens that are loaded, as if the next token were computed after them."""
    return loaded


FAULT = Fault(
    name="window_of_loaded_tokens",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="SlidingWindowManager.get_num_skipped_tokens",
    mistake=(
        "the needed window is computed from the loaded tokens, not from the token that is "
        "computed again"
    ),
    replaces={"arithmetic.counts:needed_from_load": by_loaded_tokens},
    breaks=("null_block_is_nobody",),
    cluster="pd-window",
    trace_events=7,
    refutes=claims("window", "null_is_not_needed"),
)
