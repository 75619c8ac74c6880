"""#43587: of a prompt that is prefilled in one chunk, one state survives. Prompts that share a
prefix and part before that boundary never find one. Remedies: a state at every block (#43628), or
one where prompts were seen to part (#37898, the spec's `junction`)."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="state_only_at_last_boundary",
    origin="vllm#43587",
    mistake="a prompt's state is kept only where its last chunk before the end stops",
    replaces=("shared_prefix_boundary", lambda _alone, _together: 0),
    breaks=("repeated_prompt_hits",),
    cluster="hybrid-siblings",
    trace_events=12,
)
