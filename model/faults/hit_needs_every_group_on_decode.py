"""vllm#42524: D has the attention blocks of a prompt and no Mamba state at any boundary. D hits 0
tokens and loads the whole prompt again on every turn."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="hit_needs_every_group_on_decode",
    origin="vllm#42524",
    in_vllm="HybridKVCacheCoordinator.find_longest_cache_hit",
    mistake="D uses only the common hit of all groups, although P sends the state in any case",
    replaces={"reference.blocks.prefix_hits:connector_brings_states": lambda _cfg: False},
    breaks=("repeated_prompt_hits",),
    cluster="pd-repeating",
    trace_events=13,
)
