"""vllm#43587: of a prompt that is computed in one chunk, only one state is kept. Other prompts that
share a shorter prefix never find a state. Fixes are a state at every block (vllm#43628), or a state
at the shared prefix boundary (vllm#37898; the reference does this)."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="state_only_at_last_boundary",
    origin="vllm#43587",
    in_vllm="Scheduler._mamba_block_aligned_split",
    mistake="the state of a prompt is kept only at its last block boundary",
    replaces={"reference.blocks.prefix_hits:shared_prefix_boundary": lambda _alone, _together: 0},
    breaks=("repeated_prompt_hits",),
    cluster="hybrid-siblings",
    trace_events=12,
)
