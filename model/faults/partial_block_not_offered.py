"""Before vllm#21074, P offered only full blocks. D counted all tokens that P had computed as
loaded, and attended to the tokens of the last block, which was not loaded."""

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.claims import LISTS, claims
from kvproof.model.faults.fault import Fault


def full_blocks_only(tokens: Num, block_size: Num) -> Num:
    """Number of blocks that these tokens fill completely."""
    return counts.full_blocks(tokens, block_size)


FAULT = Fault(
    name="partial_block_not_offered",
    origin="vllm#21074",
    in_vllm="NixlPullConnectorScheduler.request_finished",
    mistake="P does not offer its last block if it is not full, and D counts it as loaded",
    replaces={"arithmetic.counts:attention_blocks_offered": full_blocks_only},
    breaks=("cached_block_holds_its_key", "request_reads_its_own_prefix"),
    cluster="pd-superseding",
    trace_events=9,
    refutes=claims(LISTS, "all_is_offered"),
)
