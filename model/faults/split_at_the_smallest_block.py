"""vLLM 0.32.0 (vllm#54076): the groups have unequal block sizes.
`Scheduler._mamba_block_aligned_split` ends chunks at multiples of the smallest block size, not of
the Mamba group's block size. A chunk then runs past a state boundary, and the state at an earlier
chunk's end is cached as the state at that boundary."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="split_at_the_smallest_block",
    origin="vllm#54076",
    in_vllm="Scheduler._mamba_block_aligned_split",
    mistake="the align split uses the smallest block size of all groups",
    replaces={
        "reference.scheduling.chunks:split_unit": lambda cfg: (
            min(cfg.block_sizes) if cfg.aligned_group else 0
        )
    },
    breaks=(
        "cached_block_holds_its_key",
        "state_read_is_state_at_computed",
    ),
    cluster="partial-unequal",
    trace_events=4,
    concerns=lambda cluster: any(
        group.aligned and group.block_size > min(engine.block_sizes)
        for engine in cluster.engines
        for group in engine.groups
    ),
)
