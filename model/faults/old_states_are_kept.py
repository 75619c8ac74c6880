"""The class of vllm#39734: what a check at start reserves for a request is less than what it holds.
A Mamba group that never frees the states before the running one takes a block for each chunk."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.fault import Fault


def none_skipped(_computed: Num) -> Num:
    """As if a state were needed for ever."""
    return 0


FAULT = Fault(
    name="old_states_are_kept",
    origin="vllm#39734",
    mistake="the states before the running one are never freed",
    replaces=("tokens_skipped_by_state", none_skipped),
    breaks=("no_more_is_held_than_is_read",),
    cluster="hybrid-chunked",
    trace_events=6,
)
