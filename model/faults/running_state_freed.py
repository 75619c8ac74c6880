"""The same as vllm#47728 for a Mamba group: the last computed token counts among those whose state
is no longer needed, and at a block's end the running state goes with its block."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.claims import claims
from kvproof.model.faults.fault import Fault


def all_of_them(computed: Num) -> Num:
    """The last computed token too."""
    return computed


FAULT = Fault(
    name="running_state_freed",
    origin="vllm#47728",
    mistake="the block of the running state is let go with those before it",
    replaces=("tokens_skipped_by_state", all_of_them),
    breaks=("null_block_is_nobody",),
    cluster="hybrid",
    trace_events=4,
    refutes=claims(("mamba", "state"), "null_is_not_needed", "state_is_there"),
)
