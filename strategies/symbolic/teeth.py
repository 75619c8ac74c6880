"""Which claims about counts a named fault refutes; tests hold it to account. The others are refuted
by mistakes planted in tests."""

TABLES = ("full", "window", "mamba", "state")
LISTS = ("handover_of_full", "handover_of_window")

REFUTES: dict[str, frozenset[str]] = {
    "null_blocks_counted_as_cached": frozenset(
        f"{kind}.counter_counts_full_blocks" for kind in TABLES[1:]
    ),
    "decode_loads_whole_prompt": frozenset(
        (
            *(f"{kind}.loads_what_is_offered" for kind in TABLES),
            *(f"{kind}.delivered_is_loaded" for kind in (*LISTS, "handover_of_mamba")),
        )
    ),
    "truncation_without_guard": frozenset(f"{kind}.truncated_once" for kind in TABLES),
    "ssm_placeholders_not_trimmed": frozenset(
        ("handover_of_mamba.all_is_offered", "handover_of_mamba.lists_are_equally_long")
    ),
    "last_zero_blocks_yield_all": frozenset(
        f"{kind}.{claim}"
        for kind in LISTS
        for claim in ("lists_are_equally_long", "lists_start_together")
    ),
    "front_trim": frozenset(f"{kind}.lists_start_together" for kind in LISTS),
    "end_trim_across_ratios": frozenset(f"{kind}.lists_start_together" for kind in LISTS),
    "double_free": frozenset(("pool.held_is_referenced",)),
    "window_of_loaded_tokens": frozenset(("window.null_is_not_needed",)),
    "window_let_go_too_soon": frozenset(
        ("window.null_is_not_needed", "window.table_fits_its_tokens")
    ),
    "running_state_let_go": frozenset(
        f"{kind}.{claim}"
        for kind in ("mamba", "state")
        for claim in ("null_is_not_needed", "state_is_there")
    ),
    "window_hit_one_block_short": frozenset(("window.null_is_not_needed",)),
    "window_offer_one_block_short": frozenset(("handover_of_window.all_is_offered",)),
    "growth_rounds_down": frozenset(
        f"{kind}.{claim}"
        for kind in ("full", "window", "state")
        for claim in ("no_blocks_without_tokens", "table_fits_its_tokens")
    ),
    "placeholders_predicted": frozenset(("mamba.table_fits_its_tokens",)),
}
