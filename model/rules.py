"""The named decisions of the spec as one record of functions.

The arithmetic comes from `counts`. A fault is this record with one function replaced by what a
historical defect did (see `faults`).
"""

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kvproof.model import counts, in_flight, transfer_actions
from kvproof.model.algebra import Truth
from kvproof.model.config import Cluster
from kvproof.model.state import ASTRAY, PAUSED, RUNNING, Engine, Request, State, Transfer


def backoff_on_prefill(kinds: tuple[str, ...], embeds: bool) -> int:  # noqa: ARG001
    """Trailing prompt tokens P leaves to D: one where a Mamba state is handed over, since D must
    be able to compute the state of the whole prompt itself (vllm#37310). Token ids or embeddings
    make no difference."""
    return backoff_on_decode(kinds)


def backoff_on_decode(kinds: tuple[str, ...]) -> int:
    """Trailing prompt tokens D computes itself. Attention KV is read, not advanced: nothing is
    lost by loading all of it, so only a Mamba group backs off."""
    return 1 if "mamba" in kinds else 0


def junction(alone: int, together: int) -> int:
    """Where the next chunk must also stop: the end of the prefix that full attention has cached
    (`alone`) beyond what all groups can serve (`together`), so that the next sibling finds a state
    there (vllm#37898). 0 for nowhere."""
    return alone if alone > together else 0


def rank(priority: int, arrival: int) -> tuple[int, ...]:
    """Who is served first where priorities count: the lowest number, then who came first. The last
    in this order is preempted."""
    return priority, arrival


def takes_a_place(status: str) -> bool:
    """Whether a request of this status counts against `max_requests`: one that runs, or a session
    whose user will go on, though it may be lost. Others may wait for something that never comes,
    and nobody else would be admitted (vllm#53130)."""
    return status in (RUNNING, PAUSED, ASTRAY)


def report_spans(
    looked_at: range,  # noqa: ARG001
    cached: tuple[int, ...],
) -> tuple[tuple[range, tuple[int, ...]], ...]:
    """The reports of blocks that were cached among those looked at: the positions each spans, and
    those it names. One for each run of blocks in a row (vllm#44451)."""
    starts = [p for p in cached if p - 1 not in cached]
    ends = [p + 1 for p in cached if p + 1 not in cached]
    spans = (range(*ends_of) for ends_of in zip(starts, ends, strict=True))
    return tuple((span, tuple(span)) for span in spans)


@dataclass(frozen=True)
class Rules:
    """One function a decision. Replace one to get a fault."""

    # P and D
    backoff_on_prefill: Callable[[tuple[str, ...], bool], int] = backoff_on_prefill
    backoff_on_decode: Callable[[tuple[str, ...]], int] = backoff_on_decode
    prompt_after_truncation: Callable[..., Any] = counts.prompt_after_truncation
    tokens_loaded_by_decode: Callable[..., Any] = counts.tokens_loaded_by_decode
    trim: Callable[..., Any] = counts.trim
    lists_can_be_paired: Callable[..., Any] = transfer_actions.lists_can_be_paired
    state_slots_moved: Callable[..., Any] = counts.state_slots_moved
    needed_from_load: Callable[..., Any] = counts.needed_from_load
    decode_hit_needs_every_group: Callable[[], bool] = lambda: False
    offered_beside_hit: Callable[[int, int], int] = transfer_actions.offered_beside_hit
    hit_before_load: Callable[[int, int, Iterable[int]], int] = transfer_actions.hit_before_load
    prompt_tokens_known: Callable[[int, bool], int] = transfer_actions.prompt_tokens_known
    loads_leave_room: Callable[[], bool] = lambda: True
    slots_kept_beside_load: Callable[[int, int], int] = transfer_actions.slots_kept_beside_load
    load_at_align_split: Callable[[], str] = lambda: "passes"
    keeps_until_loaded: Callable[[Truth], Truth] = transfer_actions.keeps_until_loaded
    free_aborted: Callable[[Engine, Request, "Rules"], Engine] = transfer_actions.free_aborted
    take_repeated_report: Callable[[Engine, str], Engine] = transfer_actions.take_repeated_report
    restart_after_failed_load: Callable[..., Any] = transfer_actions.restart_after_failed_load
    attention_blocks_offered: Callable[..., Any] = counts.blocks_for_tokens
    tokens_sampled_by_prefill: Callable[..., Any] = transfer_actions.tokens_sampled_by_prefill
    reported_id: Callable[[str], str] = transfer_actions.reported_id
    renews_lease: Callable[[Truth], Truth] = transfer_actions.renews_lease
    frees_at_lease_end: Callable[[bool], bool] = transfer_actions.frees_at_lease_end
    drop_registration: Callable[[State, str], State] = transfer_actions.drop_registration
    decline_push: Callable[[Transfer], Transfer] = transfer_actions.decline_push
    tokens_handed_over: Callable[..., Any] = counts.tokens_handed_over
    # follow-up turns
    held_tokens_loaded: Callable[..., Any] = counts.held_tokens_loaded
    cut_held_list: Callable[..., tuple[int, tuple[int, ...]]] = transfer_actions.cut_held_list
    asks_for_held: Callable[[bool], bool] = transfer_actions.asks_for_held
    # cache groups
    tokens_skipped_by_window: Callable[..., Any] = counts.tokens_skipped_by_window
    tokens_skipped_by_state: Callable[..., Any] = counts.tokens_skipped_by_state
    window_blocks_for_hit: Callable[..., Any] = counts.window_blocks_for_hit
    window_blocks_offered: Callable[..., Any] = counts.window_blocks_offered
    serves_a_hit: Callable[..., Any] = counts.serves_a_hit
    is_retained: Callable[..., Any] = counts.is_retained
    matches_a_block_more: Callable[[], bool] = lambda: True
    matched_tokens: Callable[[int, int], int] = lambda known, _groups: known
    longest_hit_tokens: Callable[..., Any] = counts.longest_hit_tokens
    attention_blocks_predicted: Callable[..., Any] = counts.attention_blocks_predicted
    state_blocks_predicted: Callable[..., Any] = counts.state_blocks_predicted
    align_chunk: Callable[..., Any] = counts.align_chunk
    one_block_per_step: Callable[[], bool] = lambda: False
    junction: Callable[[int, int], int] = junction
    counted_after_hit: Callable[..., Any] = counts.blocks_counted_after_hit
    caches_end_of_prompt: Callable[[], bool] = lambda: False
    counted_after_preemption: Callable[..., Any] = lambda _counted: 0
    caches_null_blocks: Callable[[], bool] = lambda: False
    lookahead: Callable[[int], int] = lambda tokens: tokens
    tokens_to_cache: Callable[..., Any] = counts.tokens_to_cache
    caches_accepted_at_once: Callable[[], bool] = lambda: False
    computed_after_drafts: Callable[..., Any] = counts.computed_after_drafts
    computed_past_the_end: Callable[[int], int] = lambda tokens: tokens
    states_kept: Callable[[int, int], int] = lambda accepted, _drafts: accepted
    may_hold_more: Callable[[int, int], bool] = lambda _held, _needed: True
    hit_holds: Callable[[Iterable[bool]], bool] = all
    settled_hit: Callable[[int, int], int] = lambda hit, _groups: hit
    reserves_loaded_state: Callable[[], bool] = lambda: True
    reserves_superseded_state: Callable[[], bool] = lambda: False
    evictable_hit_blocks: Callable[[int], int] = lambda blocks: blocks
    # hits inside a block
    tail_chunk: Callable[..., Any] = counts.tail_chunk
    split_block: Callable[[int, int], int] = lambda state_block, _smallest: state_block
    copies_cached_state: Callable[[], bool] = lambda: True
    copies_predicted: Callable[[int], int] = lambda copies: copies
    hit_needs_room: Callable[[], bool] = lambda: True
    copies_before_step: Callable[[], bool] = lambda: True
    copies_wait_to_be_filled: Callable[[], bool] = lambda: True
    # who is served first
    rank: Callable[[int, int], tuple[int, ...]] = rank
    takes_a_place: Callable[[str], bool] = takes_a_place
    uncomputed_stays_cached: Callable[[], bool] = lambda: False
    # steps in flight
    settled_tokens: Callable[..., Any] = counts.settled_tokens
    placeholders_taken: Callable[[bool], int] = int
    placeholders_due: Callable[[int, bool], int] = transfer_actions.placeholders_due
    resumes_before_late_output: Callable[[], bool] = lambda: False
    void_steps: Callable[[Engine, str], Engine] = transfer_actions.void_steps
    uncache_missing: Callable[
        [Cluster, Engine, Request, tuple[int, ...], "Rules"], tuple[Engine, Request]
    ] = transfer_actions.uncache_missing
    free_behind_steps: Callable[[Engine, Request, "Rules"], Engine] = in_flight.free_behind_steps
    stop_running: Callable[[Engine, str], Engine] = transfer_actions.stop_running
    late_end_loses_session: Callable[[], bool] = lambda: False
    sessions_give_way: Callable[[], bool] = lambda: True
    reset_needs_idle_pool: Callable[[], bool] = lambda: True
    rejects_impossible: Callable[[], bool] = lambda: True
    # pool
    touches_hit_blocks: Callable[[], bool] = lambda: True
    forgets_evicted_key: Callable[[], bool] = lambda: True
    tells_removal: Callable[[int], bool] = lambda copies_left: copies_left == 0
    report_spans: Callable[[range, tuple[int, ...]], Any] = report_spans
    references_dropped: Callable[[], int] = lambda: 1
    times_queued: Callable[[], int] = lambda: 1

    def with_rule(self, name: str, function: Callable[..., Any]) -> "Rules":
        """These rules with one of them replaced. Raises TypeError where it has no such name."""
        return dataclasses.replace(self, **{name: function})

    def differing(self) -> list[str]:
        """The names of the rules that are not the spec's, and where each comes from."""
        names = [f.name for f in dataclasses.fields(self)]
        changed = [n for n in names if getattr(self, n) != getattr(SPEC, n)]
        return [f"{n} of {getattr(self, n).__module__}" for n in changed]


SPEC = Rules()
"""What must be true."""
