"""Compare vllm#46892: the scheduler compares another number with the free blocks than the number of
blocks that it takes."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="prediction_forgets_hits",
    origin="vllm#46892",
    in_vllm="SingleTypeKVCacheManager.get_num_blocks_to_allocate",
    mistake="the prediction does not include hit blocks that are in the free queue",
    replaces={"arithmetic.counts:blocks_from_queue": lambda new_blocks, _idle: new_blocks},
    breaks=("predicted_is_taken",),
    cluster="full",
    trace_events=5,
)
