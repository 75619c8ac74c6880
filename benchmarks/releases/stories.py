"""The seed stories: the defects for which kvproof was started."""

from typing import NamedTuple


class Story(NamedTuple):
    """The faults that reproduce a defect. `symptoms` are further invariants that show the defect if
    a run of one of its faults breaks them, because a release may have the defect in a different
    form."""

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
"""By pull request: transfers with a Mamba state; the counter because of which D hit no blocks;
align mode with a connector; and prompts that differ after a shared prefix (issue #43587)."""
