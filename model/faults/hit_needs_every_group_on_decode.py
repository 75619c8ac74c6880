"""#42524: D has the attention blocks of a prompt and no state at any boundary, so it hits 0% and
pulls everything again, every turn."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="hit_needs_every_group_on_decode",
    origin="vllm#42524",
    mistake="D takes only what all groups hit, although P sends the state anyway",
    replaces=("connector_brings_states", lambda _cfg: False),
    breaks=("repeated_prompt_hits",),
    cluster="pd-repeating",
    trace_events=13,
)
