"""A hit inside a block needs one block more than the tokens need. The prediction does not include
this block, and the allocation takes it (compare vllm#46892)."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="copy_not_predicted",
    origin="vllm#46892",
    mistake="the prediction does not include the block for a private copy",
    replaces=("copies_predicted", lambda _copies: 0),
    breaks=("predicted_is_taken", "engine_survives"),
    cluster="partial",
    trace_events=6,
    also_in=("partial-async",),
)
