"""Every check is asked on every machine that shows what it needs."""

from dataclasses import replace

from kvproof.invariants.registry import CHECKS, lacking
from kvproof.model.needs import Need
from kvproof.strategies.joined import CHECKED, JOIN_CHECKS, NECESSARY
from kvproof.watch.shown import JUDGED, NOT_JUDGED, Views

BY_BOTH = {
    *("paired_lists_are_equal", "paired_offsets_are_equal", "prefill_and_decode_agree"),
    *("offered_tokens_are_loaded", "nothing_reused_under_transfer", "load_is_offered"),
}


def test_a_check_that_is_not_asked_says_what_it_lacks() -> None:
    assert {*JUDGED} | {*NOT_JUDGED} == {*CHECKS}
    assert not {*JUDGED} & {*NOT_JUDGED}
    for name, why in NOT_JUDGED.items():
        assert any(need.value in why for need in CHECKS[name].needs), name


def test_every_fact_is_needed_and_every_view_is_asked() -> None:
    needed = {need for each in CHECKS.values() for need in each.needs if not each.ideal}
    assert needed == {*Need} - {Need.STATE}
    for view in Views:
        assert view.checks, view
        named = {need for each in view.checks for need in each.needs}
        assert view.shows == named, view


def test_a_check_of_whole_states_is_asked_by_no_watcher() -> None:
    new = replace(CHECKS["pool_adds_up"], needs=(Need.STATE,))
    shown = [view.shows for view in Views]
    assert lacking(new, *shown) == Need.STATE.value
    assert not lacking(new, frozenset(Need))


def test_two_records_are_asked_what_both_show() -> None:
    assert {each.id for each in CHECKED} == BY_BOTH
    assert set(NECESSARY) <= BY_BOTH <= set(JOIN_CHECKS)
