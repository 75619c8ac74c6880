"""A preemption reset the computed tokens of a request but not a second counter (vllm#36752, there a
counter of its statistics). Here the second counter is `num_cached_blocks`: the preempted request
has no blocks, and its next blocks are never cached."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.claims import CACHING, claims
from kvproof.model.faults.fault import Fault


def as_it_was(num_cached_blocks: Num) -> Num:
    """The number of cached blocks before the preemption."""
    return num_cached_blocks


FAULT = Fault(
    name="preemption_keeps_counter",
    origin="vllm#36752",
    mistake="a preempted request keeps its number of cached blocks",
    replaces=("counted_after_preemption", as_it_was),
    breaks=("counter_counts_only_cached",),
    cluster="pd-preempting",
    trace_events=9,
    refutes=claims(CACHING, "counter_counts_full_blocks", "no_blocks_without_tokens")
    | claims("full", "full_attention_keeps_all"),
    refutes_in_turn=claims("full", "hashed_are_counted"),
)
