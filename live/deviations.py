"""Where a release of vLLM is known to leave the spec: the findings, as faults of the model.

With these faults switched on, the model does exactly what the release does. A run of live vLLM that
is not a run of this model is a new finding, or an old one gone.
"""

from kvproof.model import customs
from kvproof.model.faults.fault import Fault
from kvproof.model.faults.registry import fault_named

SINCE_0_32 = (
    "null_blocks_counted_as_cached",
    "window_of_loaded_tokens",
    "end_trim_across_ratios",
    "longer_list_dies_across_ratios",
    "superseded_state_reserved",
    "full_hit_gives_up_load",
    "embeddings_not_loaded",
    "deeper_state_gives_up_hit",
    "loaded_state_not_predicted",
    "uncomputed_stays_cached",
    "waiting_sessions_hold_on",
    "impossible_fit_waits",
    "stray_report_dies",
    "proof_before_the_last_token",
    "fewer_than_none_predicted",
    "end_of_prompt_cached_in_wider_block",
    "removal_of_one_copy_told",
    "report_spans_skipped_blocks",
    "poisoned_step_counts",
    "failed_load_stays_cached",
    "load_keeps_room_for_drafts",
    "held_list_ends_with_prompt",
    "held_state_is_of_the_prompt",
    "held_is_loaded_again",
    "split_at_the_smallest_block",
    "hit_without_room_waits",
    "copied_before_filled",
    "write_awaited_for_ever",
    "lease_ends_under_writer",
    "unneeded_prefill_is_not_told",
    "held_goes_beyond_answer",
)
"""Known since 0.32.0 was looked at. 0.33.0 has them, too; `held_goes_beyond_answer` only where
steps overlap, and `proof_before_the_last_token` only where hashes cover no token after their block.
By default they do, with an EAGLE drafter and without a connector."""

MENDED_IN_0_33 = ("late_end_loses_session",)
"""What 0.33.0 does right."""

DEVIATIONS: dict[str, tuple[str, ...]] = {
    "0.32.0": (*SINCE_0_32, *MENDED_IN_0_33),
    "0.33.0": SINCE_0_32,
}

CUSTOMS: dict[str, tuple[Fault, ...]] = {
    "0.33.0": (customs.ACCEPTED_CACHED_AT_ONCE, customs.COMPUTED_ENDS_WITH_OUTPUT)
}
"""What a release does otherwise than the spec and is right to."""


def deviations(release: str) -> tuple[Fault, ...]:
    """The faults a release is known to have, and its customs. Of another one it is known no more
    than of the newest that was looked at."""
    nearest = release if release in DEVIATIONS else list(DEVIATIONS)[-1]
    return (*map(fault_named, DEVIATIONS[nearest]), *CUSTOMS.get(nearest, ()))
