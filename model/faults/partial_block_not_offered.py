"""Before vllm#21074, P offered only full blocks. D counted all tokens that P had computed as
loaded, and attended to the tokens of the last block, which was not loaded."""

from kvproof.model.arithmetic import counts
from kvproof.model.faults.claims import LISTS, claims
from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="partial_block_not_offered",
    origin="vllm#21074",
    mistake="P does not offer its last block if it is not full, and D counts it as loaded",
    replaces=("attention_blocks_offered", counts.full_blocks),
    breaks=("cached_block_holds_its_key", "request_reads_its_own_prefix"),
    cluster="pd-superseding",
    trace_events=9,
    refutes=claims(LISTS, "all_is_offered"),
)
