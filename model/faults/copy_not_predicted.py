"""A hit inside a block takes one block more than the tokens need. Not counted among those to be
taken, it is taken all the same (the class of vllm#46892)."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="copy_not_predicted",
    origin="vllm#46892",
    mistake="the block for a private copy is not counted among the blocks to be taken",
    replaces=("copies_predicted", lambda _copies: 0),
    breaks=("predicted_is_taken", "engine_survives"),
    cluster="partial",
    trace_events=6,
    also_in=("partial-async",),
)
