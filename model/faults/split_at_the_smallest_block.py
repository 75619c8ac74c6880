"""What vLLM 0.32.0 does (vllm#54076). Groups have unequal block sizes, and chunks are made to end
on the grid of the smallest one instead of that of the Mamba group. A chunk then runs over a
boundary of a state, and the state of where an earlier one ended is cached as that of the boundary
(`Scheduler._mamba_block_aligned_split`)."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="split_at_the_smallest_block",
    origin="vllm#54076",
    mistake="the align split goes by the smallest block size of all groups",
    replaces=("split_block", lambda _state_block, smallest: smallest),
    breaks=(
        "cached_block_holds_its_key",
        "state_read_is_state_at_computed",
    ),
    cluster="partial-unequal",
    trace_events=4,
    concerns=lambda cluster: any(engine.partial_block_hits for engine in cluster.engines),
)
