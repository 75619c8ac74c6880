"""Compare vllm#39734: at start, vLLM reserves fewer blocks for a request than the request will
hold. A Mamba group that never frees the states before the running state uses one block for each
chunk."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.fault import Fault


def none_skipped(_computed: Num) -> Num:
    """Keep every state for ever."""
    return 0


FAULT = Fault(
    name="old_states_are_kept",
    origin="vllm#39734",
    in_vllm="MambaManager.get_num_skipped_tokens",
    mistake="the states before the running one are never freed",
    replaces={"arithmetic.counts:tokens_skipped_by_state": none_skipped},
    breaks=("no_more_is_held_than_is_read",),
    cluster="hybrid-chunked",
    trace_events=6,
)
