"""A chunk ends one token before the shared prefix boundary, inside a block (compare vllm#37898,
where the boundary is a block boundary). The state there cannot be cached, and the request waits for
ever for the last token of the block."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.arithmetic.counts import align_chunk
from kvproof.model.faults.fault import Fault


def one_token_early(*numbers: Num) -> Num:
    """The align split with the shared prefix boundary, the number at index 6, one token too
    early."""
    return align_chunk(*(*numbers[:6], numbers[6] - 1, *numbers[7:]))


FAULT = Fault(
    name="shared_prefix_boundary_inside_a_block",
    origin="vllm#37898",
    in_vllm="Scheduler._mamba_block_aligned_split",
    mistake="a chunk ends one token before the shared prefix boundary, inside a block",
    replaces={"arithmetic.counts:align_chunk": one_token_early},
    breaks=("every_request_can_finish", "step_makes_progress"),
    cluster="hybrid-siblings",
    trace_events=7,
)
