"""The named decisions of the spec as one record of functions.

The arithmetic comes from `counts`. A fault is this record with one function replaced by what a
historical defect did (see `faults`).
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Truth
from kvproof.model.config import Cluster
from kvproof.model.reference.blocks import partial_block_hits, pool
from kvproof.model.reference.features import in_flight
from kvproof.model.reference.scheduling import scheduling_actions as actions
from kvproof.model.reference.transfers import transfer_actions
from kvproof.model.state import (
    MISQUEUED,
    PAUSED,
    RUNNING,
    Block,
    Engine,
    Flight,
    Request,
    State,
    Transfer,
)
from kvproof.model.step import Read


def backoff_on_prefill(kinds: tuple[str, ...], embeds: bool) -> int:  # noqa: ARG001
    """Trailing prompt tokens P leaves to D: one where a Mamba state is handed over, since D must
    be able to compute the state of the whole prompt itself (vllm#37310). Token ids or embeddings
    make no difference."""
    return backoff_on_decode(kinds)


def backoff_on_decode(kinds: tuple[str, ...]) -> int:
    """Trailing prompt tokens D computes itself. Attention KV is read, not advanced: nothing is
    lost by loading all of it, so only a Mamba group backs off."""
    return 1 if "mamba" in kinds else 0


def shared_prefix_boundary(alone: int, together: int) -> int:
    """Where the next chunk must also stop: the end of the prefix that full attention has cached
    (`alone`) beyond what all groups can serve (`together`), so that the next sibling finds a state
    there (vllm#37898). 0 for nowhere."""
    return alone if alone > together else 0


def matched_and_dropped(length: int, block_size: int) -> tuple[int, ...]:
    """Positions of the blocks that must match beyond a hit of `length` tokens, and are not taken,
    where a drafter has layers: the one after it (vllm#17137)."""
    return (int(counts.full_blocks(length, block_size)),)


def rank(priority: int, arrival: int) -> tuple[int, ...]:
    """Who is served first where priorities count: the lowest number, then who came first. The last
    in this order is preempted."""
    return priority, arrival


def takes_a_place(status: str) -> bool:
    """Whether a request of this status counts against `max_requests`: one that runs, or a session
    whose user will go on, though it may be lost. Others may wait for something that never comes,
    and nobody else would be admitted (vllm#53130)."""
    return status in (RUNNING, PAUSED, MISQUEUED)


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
    longest_local_list: Callable[..., Any] = transfer_actions.longest_local_list
    state_slots_moved: Callable[..., Any] = counts.state_slots_moved
    needed_from_load: Callable[..., Any] = counts.needed_from_load
    connector_brings_states: Callable[[Any], bool] = actions.connector_brings_states
    offered_beside_hit: Callable[[int, int], int] = transfer_actions.offered_beside_hit
    hit_before_load: Callable[[int, int, Iterable[int]], int] = transfer_actions.hit_before_load
    prompt_tokens_known: Callable[[int, bool], int] = transfer_actions.prompt_tokens_known
    leaves_room: Callable[[int, int], bool] = lambda needed, free: needed <= free
    slots_kept_beside_load: Callable[[int, int], int] = transfer_actions.slots_kept_beside_load
    begin_load: Callable[..., Any] = actions.begin_load
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
    matched_and_dropped: Callable[[int, int], tuple[int, ...]] = matched_and_dropped
    matched_tokens: Callable[[int, int], int] = lambda known, _groups: known
    longest_hit_tokens: Callable[..., Any] = counts.longest_hit_tokens
    attention_blocks_predicted: Callable[..., Any] = counts.attention_blocks_predicted
    state_blocks_predicted: Callable[..., Any] = counts.state_blocks_predicted
    align_chunk: Callable[..., Any] = counts.align_chunk
    shared_prefix_boundary: Callable[[int, int], int] = shared_prefix_boundary
    counted_after_hit: Callable[..., Any] = counts.blocks_counted_after_hit
    caches_prompt_end: Callable[..., bool] = actions.caches_prompt_end
    counted_after_preemption: Callable[..., Any] = lambda _counted: 0
    cache_block: Callable[..., Engine] = pool.cache_block
    lookahead: Callable[[int], int] = lambda tokens: tokens
    tokens_to_cache: Callable[..., Any] = counts.tokens_to_cache
    computed_after_drafts: Callable[..., Any] = counts.computed_after_drafts
    states_kept: Callable[[int, int], int] = lambda accepted, _drafts: accepted
    allocate: Callable[..., tuple[Engine, tuple[int, ...]]] = pool.allocate
    hit_holds: Callable[[Iterable[bool]], bool] = all
    settled_hit: Callable[[int, int], int] = lambda hit, _groups: hit
    tokens_loaded_before_chunk: Callable[[int, int], int] = actions.tokens_loaded_before_chunk
    states_superseded: Callable[..., Any] = lambda left_behind: left_behind
    evictable_hit_blocks: Callable[[int], int] = lambda blocks: blocks
    # hits inside a block
    tail_chunk: Callable[..., Any] = counts.tail_chunk
    split_block: Callable[[int, int], int] = lambda state_block, _smallest: state_block
    is_copied_first: Callable[[Block], bool] = pool.is_cached
    copies_predicted: Callable[[int], int] = lambda copies: copies
    hit_fits_pool: Callable[[int, int], bool] = pool.fits
    run_step: Callable[..., tuple[Engine, tuple[Read, ...]]] = partial_block_hits.run_step
    filled_by_step: Callable[..., bool] = partial_block_hits.filled_by_step
    # who is served first
    rank: Callable[[int, int], tuple[int, ...]] = rank
    takes_a_place: Callable[[str], bool] = takes_a_place
    runners_in_turn: Callable[[tuple[str, ...]], tuple[str, ...]] = lambda running: running
    forget_uncomputed: Callable[..., Engine] = pool.forget_uncomputed
    # steps in flight
    settled_tokens: Callable[..., Any] = counts.settled_tokens
    placeholders_taken: Callable[[bool], int] = int
    placeholders_due: Callable[[int, bool], int] = transfer_actions.placeholders_due
    awaits_output: Callable[[Sequence[Flight]], bool] = actions.awaits_output
    void_steps: Callable[[Engine, str], Engine] = transfer_actions.void_steps
    uncache_missing: Callable[
        [Cluster, Engine, Request, tuple[int, ...], "Rules"], tuple[Engine, Request]
    ] = transfer_actions.uncache_missing
    free_behind_steps: Callable[[Engine, Request, "Rules"], Engine] = in_flight.free_behind_steps
    stop_running: Callable[[Engine, str], Engine] = transfer_actions.stop_running
    wait_for_user: Callable[[Request], Request] = actions.wait_for_user
    serve_waiting: Callable[..., None] = actions.serve_waiting
    pool_is_idle: Callable[[Engine], bool] = pool.is_idle
    request_fits_pool: Callable[[int, int], bool] = pool.fits
    # pool
    touch_hits: Callable[[Engine, Iterable[int]], Engine] = pool.touch
    forget_key: Callable[..., Engine] = pool.forget_key
    tells_removal: Callable[[int], bool] = lambda copies_left: copies_left == 0
    report_spans: Callable[[range, tuple[int, ...]], Any] = report_spans
    references_dropped: Callable[..., Any] = lambda entries: entries
    entries_queued: Callable[..., Any] = lambda freed: freed

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
