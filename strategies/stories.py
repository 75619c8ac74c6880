"""The defects kvproof was started for, each with the faults that embody it."""

STORIES: dict[str, tuple[str, ...]] = {
    "vllm#37310": (
        "decode_loads_whole_prompt",
        "truncation_without_guard",
        "truncates_for_any_non_full_group",
        "embeddings_not_truncated",
    ),
    "vllm#42547": (
        "hit_needs_every_group_on_decode",
        "null_blocks_counted_as_cached",
        "null_blocks_registered",
    ),
    "vllm#42554": (
        "align_split_refuses_external",
        "align_split_during_load",
        "ssm_placeholders_not_trimmed",
        "last_zero_blocks_yield_all",
    ),
    "vllm#43628": ("state_only_at_last_boundary",),
}
"""By pull request: what it says of hand-overs with a Mamba state, of the counter that made D hit
nothing, of align mode with a connector, and of prompts that part (its issue is #43587)."""
