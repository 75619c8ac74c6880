"""Which claims about counts a named fault refutes: each is refuted by one at least. Tests hold it
to account."""

TABLES = ("full", "window", "mamba", "state")
LISTS = ("transfer_of_full", "transfer_of_window")
TRANSFERS = (*LISTS, "transfer_of_mamba")
CACHING = ("full", "window", "mamba")


def _all(kinds: tuple[str, ...], *claims: str) -> frozenset[str]:
    return frozenset(f"{kind}.{claim}" for kind in kinds for claim in claims)


REFUTES: dict[str, frozenset[str]] = {
    "null_blocks_counted_as_cached": _all(TABLES[1:], "counter_counts_full_blocks"),
    "decode_loads_whole_prompt": _all(TABLES, "loads_what_is_offered")
    | _all(TRANSFERS, "delivered_is_loaded"),
    "truncation_without_guard": _all(TABLES, "truncated_once"),
    "ssm_placeholders_not_trimmed": _all(
        ("transfer_of_mamba",), "all_is_offered", "lists_are_equally_long"
    ),
    "last_zero_blocks_yield_all": _all(LISTS, "lists_are_equally_long", "lists_start_together"),
    "front_trim": _all(LISTS, "lists_start_together"),
    "end_trim_across_ratios": _all(LISTS, "lists_start_together"),
    "double_free": _all(("pool",), "held_is_referenced"),
    "window_of_loaded_tokens": _all(("window",), "null_is_not_needed"),
    "window_freed_too_soon": _all(("window",), "null_is_not_needed", "table_fits_its_tokens"),
    "running_state_freed": _all(("mamba", "state"), "null_is_not_needed", "state_is_there"),
    "window_hit_one_block_short": _all(("window",), "null_is_not_needed"),
    "window_offer_one_block_short": _all(("transfer_of_window",), "all_is_offered"),
    "growth_rounds_down": _all(
        ("full", "window", "state"), "no_blocks_without_tokens", "table_fits_its_tokens"
    ),
    "placeholders_predicted": _all(("mamba",), "table_fits_its_tokens"),
    "deepest_group_wins": _all(("full",), "full_attention_keeps_all"),
    "partial_block_not_offered": _all(LISTS, "all_is_offered"),
    "lease_ends_under_reader": _all(TRANSFERS, "blocks_outlive_their_readers"),
    "read_is_not_reported": _all(TRANSFERS, "counts_are_none_when_over"),
    "freed_block_leaks": _all(("pool",), "pool_adds_up"),
    "one_token_prompt_truncated": _all(TABLES, "counts_are_none_when_gone", "truncated_once"),
    "preemption_keeps_counter": _all(
        CACHING, "no_blocks_without_tokens", "counter_counts_full_blocks"
    )
    | _all(("full",), "full_attention_keeps_all"),
    "hit_not_counted": _all(CACHING, "hashed_are_counted")
    | _all(("full",), "full_attention_keeps_all"),
    "prefill_decodes_on": _all(TABLES, "computes_known_tokens")
    | _all(TRANSFERS, "delivered_is_loaded"),
    "failed_load_waits_on": _all(TABLES, "loads_all_or_nothing"),
}

FALL_WITH: dict[str, frozenset[str]] = {
    "decode_loads_whole_prompt": _all(("mamba", "state"), "null_is_not_needed"),
    "truncation_without_guard": _all(TABLES, "delivered_is_counted"),
    "growth_rounds_down": _all(("state",), "state_is_there"),
    "deepest_group_wins": _all(("full",), "hashed_are_counted"),
    "preemption_keeps_counter": _all(("full",), "hashed_are_counted"),
    "prefill_decodes_on": _all(TABLES, "delivered_is_counted"),
    "failed_load_waits_on": _all(TABLES[1:], "null_is_not_needed"),
}
"""Claims that each step keeps where all the others hold, and that fall because one of those does:
a run of the counts breaks them."""


def refuted() -> dict[str, frozenset[str]]:
    """All claims that each fault refutes, by the fault's name."""
    none: frozenset[str] = frozenset()
    names = dict.fromkeys((*REFUTES, *FALL_WITH))
    return {name: REFUTES.get(name, none) | FALL_WITH.get(name, none) for name in names}
