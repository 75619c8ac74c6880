"""All faults. A new one is a file and a line here."""

from kvproof.model.errors import unknown
from kvproof.model.faults import (
    abort_frees_under_load,
    aborted_load_never_frees,
    align_split_during_load,
    align_split_refuses_external,
    decode_loads_whole_prompt,
    deeper_state_gives_up_hit,
    deepest_group_wins,
    double_free,
    embeddings_not_loaded,
    embeddings_not_truncated,
    end_trim_across_ratios,
    evicted_key_stays,
    front_trim,
    full_hit_gives_up_load,
    growth_rounds_down,
    hit_collapses_with_three_groups,
    hit_covers_whole_prompt,
    hit_needs_every_group_on_decode,
    junction_inside_a_block,
    last_zero_blocks_yield_all,
    loads_take_the_last_blocks,
    longer_list_dies_across_ratios,
    mask_hides_needed_blocks,
    no_align_split,
    null_blocks_counted_as_cached,
    null_blocks_registered,
    placeholders_predicted,
    prediction_forgets_hits,
    running_state_let_go,
    ssm_placeholders_not_trimmed,
    state_only_at_last_boundary,
    superseded_state_reserved,
    truncates_for_any_non_full_group,
    truncation_without_guard,
    untouched_hits,
    wide_block_never_crossed,
    window_hit_one_block_short,
    window_let_go_too_soon,
    window_of_loaded_tokens,
    window_offer_one_block_short,
)
from kvproof.model.faults.fault import Fault

FAULTS: dict[str, Fault] = {
    module.FAULT.name: module.FAULT
    for module in (
        null_blocks_counted_as_cached,
        null_blocks_registered,
        decode_loads_whole_prompt,
        truncation_without_guard,
        truncates_for_any_non_full_group,
        embeddings_not_truncated,
        ssm_placeholders_not_trimmed,
        last_zero_blocks_yield_all,
        front_trim,
        end_trim_across_ratios,
        align_split_refuses_external,
        align_split_during_load,
        state_only_at_last_boundary,
        untouched_hits,
        double_free,
        evicted_key_stays,
        deepest_group_wins,
        hit_collapses_with_three_groups,
        prediction_forgets_hits,
        abort_frees_under_load,
        aborted_load_never_frees,
        no_align_split,
        hit_needs_every_group_on_decode,
        window_of_loaded_tokens,
        superseded_state_reserved,
        full_hit_gives_up_load,
        embeddings_not_loaded,
        longer_list_dies_across_ratios,
        loads_take_the_last_blocks,
        window_let_go_too_soon,
        running_state_let_go,
        window_hit_one_block_short,
        window_offer_one_block_short,
        mask_hides_needed_blocks,
        hit_covers_whole_prompt,
        growth_rounds_down,
        placeholders_predicted,
        wide_block_never_crossed,
        junction_inside_a_block,
        deeper_state_gives_up_hit,
    )
}


def fault_named(name: str) -> Fault:
    """The fault of this name. Raises UsageError with the nearest name."""
    if name not in FAULTS:
        raise unknown("fault", name, FAULTS)
    return FAULTS[name]
