"""vLLM 0.32.0, found by kvproof on the live connector (compare vllm#46892). D has cached a state at
a boundary, full attention hits further, and P sends the state at the end. D does not use, reference
or take the cached state. The prediction still counts it among the blocks taken from the free queue,
so a request that fits exactly must wait."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="superseded_state_reserved",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="MambaManager.get_num_blocks_to_allocate",
    mistake="the prediction includes a cached state that the load makes superfluous",
    replaces={"arithmetic.counts:state_is_used": lambda hit_blocks, _left_behind: hit_blocks > 0},
    breaks=("predicted_is_taken",),
    cluster="pd-superseding",
    trace_events=13,
)
