"""First change of #42547. In vLLM 0.32.0 the counter still does this: for Mamba and for a window
the placeholders are positions that would never be hashed anyway, so the count is wrong and harmless
there; for any group whose skipped blocks a later lookup could ask for, it is not."""

from kvproof.model.arithmetic.algebra import Num, max_
from kvproof.model.faults.claims import claims
from kvproof.model.faults.fault import Fault


def counts_placeholders(hit_blocks: Num, skipped_blocks: Num) -> Num:
    """The length of the table so far, placeholders and all."""
    return max_(hit_blocks, skipped_blocks)


FAULT = Fault(
    name="null_blocks_counted_as_cached",
    origin="vllm#42547",
    mistake="null placeholders in front of tokens the connector brings are counted as cached",
    replaces=("counted_after_hit", counts_placeholders),
    breaks=("counter_counts_only_cached",),
    cluster="pd",
    trace_events=7,
    refutes=claims(("window", "mamba", "state"), "counter_counts_full_blocks"),
)
