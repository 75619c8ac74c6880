"""The opposite of vllm#46892: the placeholders before the running state are counted among the
blocks that a request will take."""

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num, max_
from kvproof.model.faults.claims import claims
from kvproof.model.faults.fault import Fault


def one_for_each(
    end: Num,
    block_size: Num,
    held_blocks: Num,
    scratch: int = 0,
    fresh: int = 0,  # noqa: ARG001
) -> Num:
    """One block for each entry of the table."""
    return max_(counts.blocks_for_tokens(end, block_size) + scratch - held_blocks, 0)


FAULT = Fault(
    name="placeholders_predicted",
    origin="vllm#46892",
    in_vllm="MambaManager.get_num_blocks_to_allocate",
    mistake="the prediction includes the null placeholders of a Mamba table",
    replaces={"arithmetic.counts:state_blocks_predicted": one_for_each},
    breaks=("table_fits_its_tokens", "predicted_is_taken"),
    cluster="hybrid",
    trace_events=2,
    also_in=("pd",),
    refutes=claims("mamba", "table_fits_its_tokens"),
)
