"""The class of #46892: the number compared with the free blocks is not the number taken from
them."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="prediction_forgets_hits",
    origin="vllm#46892",
    mistake="hit blocks that are free now are not counted among the blocks a request will take",
    replaces=("evictable_hit_blocks", lambda _blocks: 0),
    breaks=("predicted_is_taken",),
    cluster="full",
    trace_events=5,
)
