"""The explorer: exact numbers of states, shortest traces, and no verdict it has not earned."""

from itertools import pairwise

import networkx as nx
import pytest

from kvproof.invariants.registry import INVARIANTS
from kvproof.model import termination
from kvproof.model.events import Schedule
from kvproof.model.faults.fault import rules_with
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.reference.default_rules import REFERENCE
from kvproof.strategies.explorer.exhaustive import search
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.verdict import Verdict

pytestmark = pytest.mark.exhaustive

STATES = {
    "full": 30,
    "full-evicting": 29,
    "window": 39,
    "window-wide": 16,
    "unequal": 16,
    "events": 155,
    "events-hybrid": 1074,
    "events-sparse": 17,
    "sparse-window": 108,
    "sparse-hybrid": 342,
    "sparse-periodic": 27,
    "sparse-three": 25,
    "sparse-pd": 232,
    "hybrid": 45,
    "hybrid-narrow": 51,
    "hybrid-chunked": 39,
    "hybrid-evicting": 1074,
    "hybrid-siblings": 394,
    "state": 41,
    "three": 25,
    "oversized": 16,
    "oversized-hybrid": 12,
    "store": 54,
    "store-window": 45,
    "store-hybrid": 279,
    "store-tight": 267,
    "store-three": 53,
    "store-state": 39,
    "drafts": 125,
    "drafts-aligned": 17,
    "ngram-drafts": 79,
    "window-drafts": 28,
    "hybrid-drafts": 137,
    "hybrid-drafts-cut": 418,
    "pd": 267,
    "pd-full": 478,
    "turns": 168,
    "turns-shorter": 193,
    "turns-window": 26,
    "turns-hybrid": 26,
    "turns-state": 40,
    "turns-recomputing": 171,
    "turns-drafts": 54,
    "turns-async": 161,
    "pd-window": 278,
    "pd-window-narrow": 474,
    "pd-hitting": 222,
    "pd-three": 222,
    "pd-preempting": 439,
    "pd-embeds": 13,
    "pd-repeating": 488,
    "pd-aborting": 652,
    "pd-failing": 360,
    "pd-recomputing": 698,
    "pd-evicting": 8465,
    "pd-superseding": 274,
    "pd-covering": 398,
    "pd-default": 5993,
    "pd-tight": 213,
    "pd-one-token": 205,
    "pd-state": 379,
    "pd-state-preempting": 1126,
    "pd-losing": 24,
    "pd-stray": 17,
    "pd-remnant": 5286,
    "pd-ratio": 363,
    "pd-ratio-decode": 335,
    "priority": 490,
    "priority-hybrid": 65,
    "pd-limited": 615,
    "push": 444,
    "push-full": 791,
    "push-failing": 36,
    "push-leases": 39,
    "push-overdue": 277,
    "push-async": 179,
    "sessions": 161,
    "sessions-hybrid": 321,
    "sessions-async": 177,
    "resetting": 156,
    "async": 770,
    "async-preempting": 712,
    "hybrid-async": 133,
    "async-drafts": 240,
    "lookahead-hashes": 129,
    "lookahead-hashes-async": 231,
    "lookahead-hashes-unequal": 28,
    "lookahead-hashes-sparse": 274,
    "lookahead-hashes-events": 186,
    "async-drafts-window": 291,
    "hybrid-async-drafts": 35,
    "store-drafts": 149,
    "pd-events": 497,
    "state-drafts": 173,
    "sparse-drafts": 309,
    "sparse-window-drafts": 144,
    "pd-drafts": 1705,
    "pd-drafts-tight": 9,
    "pd-drafts-async": 1905,
    "pd-async": 1764,
    "store-async": 796,
    "pd-async-decode": 799,
    "store-failing": 46,
    "store-recomputing": 971,
    "store-failing-async": 116,
    "partial": 325,
    "partial-unequal": 57,
    "partial-tight": 47,
    "partial-evicting": 7851,
    "partial-async": 254,
    "partial-events": 511,
}

TRACES = {
    "null_blocks_counted_as_cached": 7,
    "null_blocks_registered": 2,
    "decode_loads_whole_prompt": 7,
    "truncation_without_guard": 11,
    "truncates_for_any_non_full_group": 5,
    "embeddings_not_truncated": 7,
    "ssm_placeholders_not_trimmed": 7,
    "last_zero_blocks_yield_all": 13,
    "front_trim": 9,
    "end_trim_across_ratios": 5,
    "align_split_refuses_external": 7,
    "align_split_during_load": 6,
    "state_only_at_last_boundary": 12,
    "untouched_hits": 3,
    "double_free": 3,
    "evicted_key_stays": 7,
    "deepest_group_wins": 8,
    "hit_collapses_with_three_groups": 3,
    "prediction_forgets_hits": 5,
    "abort_frees_under_load": 6,
    "aborted_load_never_frees": 7,
    "no_align_split": 4,
    "hit_needs_every_group_on_decode": 13,
    "window_of_loaded_tokens": 7,
    "superseded_state_reserved": 13,
    "full_hit_gives_up_load": 11,
    "embeddings_not_loaded": 7,
    "longer_list_dies_across_ratios": 5,
    "loads_take_the_last_blocks": 12,
    "window_freed_too_soon": 4,
    "old_states_are_kept": 6,
    "runner_is_passed_over": 6,
    "running_state_freed": 4,
    "window_hit_one_block_short": 5,
    "window_offer_one_block_short": 7,
    "mask_hides_needed_blocks": 7,
    "end_of_prompt_cached_in_wider_block": 2,
    "removal_of_one_copy_reported": 6,
    "report_spans_skipped_blocks": 2,
    "retained_boundary_out_of_reach": 7,
    "retention_drops_shared_prefix_boundary": 8,
    "hit_covers_whole_prompt": 5,
    "growth_rounds_down": 2,
    "placeholders_predicted": 2,
    "wide_block_never_crossed": 2,
    "shared_prefix_boundary_inside_a_block": 7,
    "deeper_state_gives_up_hit": 19,
    "lookahead_not_reserved": 2,
    "next_token_not_hashed": 2,
    "cached_before_the_next_token": 4,
    "drafts_are_cached": 5,
    "rejected_drafts_are_computed": 5,
    "state_of_rejected_drafts": 8,
    "fewer_blocks_than_held_dies": 9,
    "last_match_not_dropped": 7,
    "eagle_drop_block_not_cached": 5,
    "eagle_drop_before_the_last_token": 3,
    "state_past_the_resume": 7,
    "fewer_than_none_predicted": 9,
    "loaded_state_not_predicted": 8,
    "priority_is_reversed": 3,
    "uncomputed_stays_cached": 7,
    "deferred_requests_take_places": 11,
    "window_freed_in_flight": 5,
    "frees_before_steps_end": 3,
    "late_output_takes_placeholder": 7,
    "resumes_before_late_output": 10,
    "chunk_takes_placeholder": 3,
    "finished_still_runs": 5,
    "waiting_sessions_hold_on": 9,
    "late_end_loses_session": 7,
    "reset_under_load": 4,
    "impossible_fit_waits": 2,
    "load_keeps_room_for_drafts": 4,
    "poisoned_step_counts": 6,
    "failed_load_stays_cached": 7,
    "stray_report_dies": 3,
    "chunk_rounds_up": 2,
    "partial_block_not_offered": 9,
    "lease_ends_under_reader": 8,
    "read_is_not_reported": 12,
    "freed_block_leaks": 3,
    "one_token_prompt_truncated": 1,
    "preemption_keeps_counter": 9,
    "hit_not_counted": 3,
    "prefill_decodes_on": 9,
    "failed_load_waits_on": 9,
    "held_list_ends_with_prompt": 16,
    "held_state_is_of_the_prompt": 16,
    "held_is_loaded_again": 15,
    "held_goes_beyond_answer": 14,
    "split_at_the_smallest_block": 4,
    "hit_without_room_waits": 9,
    "copied_before_filled": 9,
    "cached_state_overwritten": 6,
    "copy_not_predicted": 6,
    "copies_after_the_step": 6,
    "write_awaited_for_ever": 4,
    "lease_ends_under_writer": 6,
    "unneeded_prefill_is_not_reported": 13,
    "prompt_end_run_over": 7,
}


@pytest.mark.parametrize("name", STATES)
def test_the_number_of_distinct_states(name: str) -> None:
    outcome = explore(CLUSTERS[name])
    assert outcome.verdict is Verdict.EXHAUSTED
    assert outcome.coverage["states_distinct"] == STATES[name]


def test_every_preset_is_counted() -> None:
    assert set(STATES) == set(CLUSTERS)


@pytest.mark.parametrize("name", TRACES)
def test_every_fault_is_found_by_a_shortest_trace(name: str) -> None:
    fault = FAULTS[name]
    outcome = explore(CLUSTERS[fault.cluster], rules_with([fault]))
    assert outcome.verdict is Verdict.VIOLATED
    assert outcome.finding is not None
    assert outcome.finding.invariant in fault.breaks
    assert len(outcome.events) == TRACES[name]


def test_the_trace_that_came_nearest_is_told() -> None:
    coverage = explore(CLUSTERS["pd-window"]).coverage["margins"]
    assert set(coverage) == {"pool_adds_up", "null_block_is_nobody", "counter_counts_only_cached"}
    for margin in coverage.values():
        assert len(margin["trace"]) == margin["after_events"]
        assert margin["smallest"] >= 0
    one_token_more = coverage["null_block_is_nobody"]
    assert one_token_more["smallest"] == 1
    assert one_token_more["trace"][0].startswith("Submit(P")


def test_every_fault_has_a_length() -> None:
    assert set(TRACES) == set(FAULTS)


def test_a_cut_search_is_unknown() -> None:
    outcome = explore(CLUSTERS["pd"], states_max=100)
    assert outcome.verdict is Verdict.UNKNOWN
    assert "cut at 100 states" in outcome.reason


def test_the_graph_has_a_shortest_path_to_every_state() -> None:
    cluster = CLUSTERS["pd-failing"]
    reached = search(cluster, REFERENCE, list(INVARIANTS.values()), 10_000)
    graph = reached.graph()
    assert graph.number_of_nodes() == len(reached.states)
    lengths = nx.single_source_shortest_path_length(graph, 0)
    assert [lengths[i] for i in range(len(reached.states))] == reached.depths


def test_a_trace_leads_to_its_state() -> None:
    cluster = CLUSTERS["pd"]
    reached = search(cluster, REFERENCE, [], 10_000)
    for index in range(0, len(reached.states), 50):
        machine = ModelMachine(cluster)
        for event in reached.trace(index):
            machine.take(event)
        assert machine.state == reached.states[index]


def test_states_are_found_once_and_in_order_of_depth() -> None:
    reached = search(CLUSTERS["pd-three"], REFERENCE, [], 10_000)
    assert len(set(reached.states)) == len(reached.states)
    assert all(a <= b for a, b in pairwise(reached.depths))


def test_a_stuck_trace_leads_to_where_d_schedules_for_ever() -> None:
    fault = FAULTS["align_split_during_load"]
    cluster = CLUSTERS[fault.cluster]
    outcome = explore(cluster, rules_with([fault]))
    machine = ModelMachine(cluster, rules_with([fault]))
    for event in outcome.events:
        machine.take(event)
    end = machine.state
    assert not termination.over(end)
    assert machine.take(Schedule("D")).after == end
