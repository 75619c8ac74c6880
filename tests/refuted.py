"""The claims about counts that each fault refutes: `system.claim`, as `kvproof prove` has them."""

from collections.abc import Mapping

TABLES = ("full", "window", "mamba", "state")
CACHING = ("full", "window", "mamba")
LISTS = ("transfer_of_full", "transfer_of_window")
TRANSFERS = (*LISTS, "transfer_of_mamba")


def claims(systems: str | tuple[str, ...], *names: str) -> frozenset[str]:
    """These claims of each of these systems."""
    each = (systems,) if isinstance(systems, str) else systems
    return frozenset(f"{system}.{name}" for system in each for name in names)


REFUTED: Mapping[str, frozenset[str]] = {
    "freed_block_leaks": claims("pool", "pool_adds_up"),
    "growth_rounds_down": claims(
        ("full", "window", "state"), "no_blocks_without_tokens", "table_fits_its_tokens"
    ),
    "deepest_group_wins": claims("full", "full_attention_keeps_all"),
    "hit_not_counted": claims("full", "full_attention_keeps_all")
    | claims(CACHING, "hashed_are_counted"),
    "failed_load_waits_on": claims(TABLES, "loads_all_or_nothing"),
    "prefill_decodes_on": claims(TABLES, "computes_known_tokens")
    | claims(TRANSFERS, "delivered_is_loaded"),
    "decode_loads_whole_prompt": claims(TABLES, "loads_what_is_offered")
    | claims(TRANSFERS, "delivered_is_loaded"),
    "truncation_without_guard": claims(TABLES, "truncated_once"),
    "one_token_prompt_truncated": claims(TABLES, "counts_are_none_when_gone", "truncated_once"),
    "partial_block_not_offered": claims(LISTS, "all_is_offered"),
    "preemption_keeps_counter": claims(
        CACHING, "counter_counts_full_blocks", "no_blocks_without_tokens"
    )
    | claims("full", "full_attention_keeps_all"),
    "running_state_freed": claims(("mamba", "state"), "null_is_not_needed", "state_is_there"),
    "null_blocks_counted_as_cached": claims(
        ("window", "mamba", "state"), "counter_counts_full_blocks"
    ),
    "placeholders_predicted": claims("mamba", "table_fits_its_tokens"),
    "ssm_placeholders_not_trimmed": claims(
        "transfer_of_mamba", "all_is_offered", "lists_are_equally_long"
    ),
    "front_trim": claims(LISTS, "lists_start_together"),
    "last_zero_blocks_yield_all": claims(LISTS, "lists_are_equally_long", "lists_start_together"),
    "end_trim_across_ratios": claims(LISTS, "lists_start_together"),
    "lease_ends_under_reader": claims(TRANSFERS, "blocks_outlive_their_readers"),
    "read_is_not_reported": claims(TRANSFERS, "counts_are_none_when_over"),
    "window_hit_one_block_short": claims("window", "null_is_not_needed"),
    "window_freed_too_soon": claims("window", "null_is_not_needed", "table_fits_its_tokens")
    | claims(("mamba", "state"), "null_is_not_needed", "state_is_there"),
    "window_of_loaded_tokens": claims("window", "null_is_not_needed"),
    "window_offer_one_block_short": claims("transfer_of_window", "all_is_offered"),
}
"""The claims that do not hold under a fault. Some systems share their claims."""

IN_TURN: Mapping[str, frozenset[str]] = {
    "growth_rounds_down": claims("state", "state_is_there"),
    "deepest_group_wins": claims("full", "hashed_are_counted"),
    "failed_load_waits_on": claims(("window", "mamba", "state"), "null_is_not_needed"),
    "prefill_decodes_on": claims(TABLES, "delivered_is_counted"),
    "decode_loads_whole_prompt": claims(("mamba", "state"), "null_is_not_needed"),
    "truncation_without_guard": claims(TABLES, "delivered_is_counted"),
    "preemption_keeps_counter": claims("full", "hashed_are_counted"),
}
"""The claims that fall because another does."""


def all_refuted(fault: str) -> frozenset[str]:
    """The claims that do not hold under a fault of this name."""
    return REFUTED.get(fault, frozenset()) | IN_TURN.get(fault, frozenset())
