"""The mistake of vllm#47728 in a Mamba group: the last computed token counts as a token whose state
is no longer needed. At the end of a block, the block of the running state is freed."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.claims import claims
from kvproof.model.faults.fault import Fault


def all_of_them(computed: Num) -> Num:
    """All computed tokens, the last one included."""
    return computed


FAULT = Fault(
    name="running_state_freed",
    origin="vllm#47728",
    in_vllm="MambaManager.get_num_skipped_tokens",
    mistake="the block of the running state is freed with the blocks before it",
    replaces={"arithmetic.counts:tokens_skipped_by_state": all_of_them},
    breaks=("null_block_is_nobody",),
    cluster="hybrid",
    trace_events=4,
    refutes=claims(("mamba", "state"), "null_is_not_needed", "state_is_there"),
)
