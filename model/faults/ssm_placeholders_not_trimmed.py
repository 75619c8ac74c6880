"""Before vllm#42554, the two lists of a Mamba group had to have equal length without trimming. P's
list had a placeholder for each block before the state, and D's list had one entry."""

from kvproof.model.faults.claims import claims
from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="ssm_placeholders_not_trimmed",
    origin="vllm#42554",
    in_vllm="NixlBaseConnectorWorker._apply_prefix_caching",
    mistake="P's placeholders before the Mamba state are not trimmed",
    replaces={"arithmetic.counts:state_slots_moved": lambda slots: slots},
    breaks=("paired_lists_are_equal", "null_block_is_nobody"),
    cluster="pd",
    trace_events=7,
    refutes=claims("transfer_of_mamba", "all_is_offered", "lists_are_equally_long"),
)
