"""The defects kvproof was started for."""

from typing import NamedTuple


class Story(NamedTuple):
    """The faults that embody a defect. `symptoms` are invariants that tell of it as well, where a
    run of one of its faults breaks them: a release may have it in another form than the fault."""

    faults: tuple[str, ...]
    symptoms: tuple[str, ...] = ()


STORIES: dict[str, Story] = {
    "vllm#37310": Story(
        (
            "decode_loads_whole_prompt",
            "truncation_without_guard",
            "truncates_for_any_non_full_group",
            "embeddings_not_truncated",
        ),
        ("state_read_is_state_at_computed",),
    ),
    "vllm#42547": Story(
        (
            "hit_needs_every_group_on_decode",
            "null_blocks_counted_as_cached",
            "null_blocks_registered",
        )
    ),
    "vllm#42554": Story(
        (
            "align_split_refuses_external",
            "align_split_during_load",
            "ssm_placeholders_not_trimmed",
            "last_zero_blocks_yield_all",
        )
    ),
    "vllm#43628": Story(("state_only_at_last_boundary",)),
}
"""By pull request: what it says of transfers with a Mamba state, of the counter that made D hit
nothing, of align mode with a connector, and of prompts that part (its issue is #43587)."""
