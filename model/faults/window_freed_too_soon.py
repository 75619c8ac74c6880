"""vLLM freed blocks according to the scheduled tokens, not the processed tokens (vllm#47728). Here
the window moves one token too early."""

from kvproof.model.arithmetic.algebra import Num, max_
from kvproof.model.faults.claims import claims
from kvproof.model.faults.fault import Fault


def one_more(computed: Num, window: Num) -> Num:
    """The skipped tokens as if one more token were computed."""
    return max_(computed - window + 2, 0)


FAULT = Fault(
    name="window_freed_too_soon",
    origin="vllm#47728",
    in_vllm="SlidingWindowManager.get_num_skipped_tokens",
    mistake="blocks behind the window are freed one token too early",
    replaces={"arithmetic.counts:tokens_skipped_by_window": one_more},
    breaks=("null_block_is_nobody",),
    cluster="window",
    trace_events=4,
    refutes=claims("window", "null_is_not_needed", "table_fits_its_tokens"),
)
