"""The prediction for a request is too low (compare vllm#46892), and so is the allocation. The
tokens of its last block are written to the null block."""

from kvproof.model.arithmetic.algebra import Num, div, max_
from kvproof.model.faults.claims import claims
from kvproof.model.faults.fault import Fault


def rounded_down(end: Num, block_size: Num, held_blocks: Num, skipped_blocks: Num) -> Num:
    """Number of full blocks only."""
    return max_(div(end, block_size) - max_(held_blocks, skipped_blocks), 0)


FAULT = Fault(
    name="growth_rounds_down",
    origin="vllm#46892",
    in_vllm="SingleTypeKVCacheManager.get_num_blocks_to_allocate",
    mistake="no block is allocated for tokens that do not fill a block",
    replaces={"arithmetic.counts:attention_blocks_predicted": rounded_down},
    breaks=("null_block_is_nobody", "writer_is_alone"),
    cluster="full",
    trace_events=2,
    refutes=claims(
        ("full", "window", "state"), "no_blocks_without_tokens", "table_fits_its_tokens"
    ),
    refutes_in_turn=claims("state", "state_is_there"),
)
