"""All invariants. A new one is a file and a line here."""

from collections.abc import Iterable

from kvproof.invariants import (
    all_blocks_return,
    cached_block_holds_its_key,
    cached_key_can_be_hit,
    counter_counts_only_cached,
    drafter_holds_its_key,
    engine_survives,
    events_carry_their_tokens,
    events_replay_to_the_cache,
    every_request_can_finish,
    every_request_in_one_queue,
    hash_map_is_sound,
    hit_holds_in_every_group,
    hit_is_the_longest,
    no_block_free_and_held,
    no_more_is_held_than_is_read,
    no_token_of_a_failed_load,
    nothing_kept_for_nobody,
    nothing_reused_under_transfer,
    null_block_is_nobody,
    offered_tokens_are_loaded,
    paired_lists_are_equal,
    paired_offsets_are_equal,
    placeholders_are_samples_in_flight,
    pool_adds_up,
    predicted_is_taken,
    prefill_and_decode_agree,
    priority_is_kept,
    references_are_exact,
    repeated_prompt_hits,
    request_reads_its_own_prefix,
    reset_is_whole,
    room_is_used,
    settled_frees,
    state_read_is_state_at_computed,
    step_makes_progress,
    table_fits_its_tokens,
    truncated_at_most_once,
    writer_is_alone,
)
from kvproof.invariants.invariant import Finding, Invariant
from kvproof.model.errors import unknown
from kvproof.model.severity import FAIL_ON, Severity
from kvproof.model.spec.registry import GUARDS

INVARIANTS: dict[str, Invariant] = {
    module.INVARIANT.id: module.INVARIANT
    for module in (
        pool_adds_up,
        references_are_exact,
        no_block_free_and_held,
        writer_is_alone,
        hash_map_is_sound,
        cached_block_holds_its_key,
        cached_key_can_be_hit,
        events_replay_to_the_cache,
        events_carry_their_tokens,
        request_reads_its_own_prefix,
        state_read_is_state_at_computed,
        counter_counts_only_cached,
        drafter_holds_its_key,
        hit_holds_in_every_group,
        hit_is_the_longest,
        repeated_prompt_hits,
        predicted_is_taken,
        table_fits_its_tokens,
        no_more_is_held_than_is_read,
        truncated_at_most_once,
        prefill_and_decode_agree,
        offered_tokens_are_loaded,
        paired_lists_are_equal,
        paired_offsets_are_equal,
        null_block_is_nobody,
        nothing_reused_under_transfer,
        nothing_kept_for_nobody,
        placeholders_are_samples_in_flight,
        settled_frees,
        no_token_of_a_failed_load,
        all_blocks_return,
        priority_is_kept,
        every_request_in_one_queue,
        reset_is_whole,
        engine_survives,
        room_is_used,
        step_makes_progress,
        every_request_can_finish,
    )
}


CHECKS: dict[str, Invariant] = INVARIANTS | {
    guard.id: Invariant(
        id=guard.id,
        name=guard.name,
        origin=f"the spec, {guard.part}",
        severity=guard.severity,
        check=guard.check,
        killed_by="",
        kind="guard",
    )
    for guard in GUARDS.values()
}
"""All that a step is asked of: the invariants, and the guards of the spec (see `model.spec`)."""


def check_named(name: str) -> Invariant:
    """The invariant or guard of this id. Raises UsageError with the nearest id."""
    if name not in CHECKS:
        raise unknown("invariant", name, CHECKS)
    return CHECKS[name]


def severity_of(finding: Finding) -> Severity | None:
    """How grave a finding is; None where it is of no check: a refuted obligation, or a step that
    the proofs do not know. What a user would feel of that cannot be said."""
    known = CHECKS.get(finding.invariant)
    return None if known is None else known.severity


def gravest(findings: Iterable[Finding]) -> list[Finding]:
    """The findings of one step, the one to be told first in front.

    What is a leak or graver comes before what is not. Of each half invariants come before guards,
    for they say what is wrong, and guards how it came about; then the gravest, and those alike in
    the order of the registry. One of no severity comes after a leak: what has a name tells more,
    and what only costs time must not hide it.
    """
    order = list(CHECKS)

    def rank(finding: Finding) -> tuple[float, ...]:
        severity = severity_of(finding)
        if severity is None:
            return 1, 0, 0, 0
        later = 0 if severity <= FAIL_ON else 2
        guard = CHECKS[finding.invariant].kind == "guard"
        return later, guard, severity, order.index(finding.invariant)

    return sorted(findings, key=rank)
