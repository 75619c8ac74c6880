"""The decisions of the reference, as one record of named functions.

`default_rules` has the record without a fault. A fault replaces one function of that record by the
behaviour of a historical defect (see `faults`).
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kvproof.model.arithmetic.algebra import Truth
from kvproof.model.config import Cluster, Group
from kvproof.model.state import Block, Engine, Flight, Request, State, Table, Transfer
from kvproof.model.step import Read


class BlockArithmetic(Protocol):
    """The rules that compute how many blocks a group needs, by arithmetic only. `Rules` has them;
    `counts` has them without a fault, for the capacity of an engine (see `blocks.capacity`)."""

    @property
    def tokens_skipped_by_window(self) -> Callable[..., Any]: ...

    @property
    def tokens_skipped_by_state(self) -> Callable[..., Any]: ...

    @property
    def window_blocks_for_hit(self) -> Callable[..., Any]: ...

    @property
    def attention_blocks_predicted(self) -> Callable[..., Any]: ...

    @property
    def state_blocks_predicted(self) -> Callable[..., Any]: ...


@dataclass(frozen=True, kw_only=True)
class Rules:
    """One function for each decision. A fault replaces one of them."""

    # P and D
    backoff_on_prefill: Callable[[tuple[str, ...], bool], int]
    backoff_on_decode: Callable[[tuple[str, ...]], int]
    prompt_after_truncation: Callable[..., Any]
    tokens_loaded_by_decode: Callable[..., Any]
    trim: Callable[..., Any]
    longest_local_list: Callable[..., Any]
    state_slots_moved: Callable[..., Any]
    needed_from_load: Callable[..., Any]
    connector_brings_states: Callable[[Any], bool]
    offered_beside_hit: Callable[[int, int], int]
    hit_before_load: Callable[[int, int, Iterable[int]], int]
    prompt_tokens_known: Callable[[int, bool], int]
    leaves_room: Callable[[int, int], bool]
    slots_kept_beside_load: Callable[[int, int], int]
    begin_load: Callable[..., Any]
    keeps_until_loaded: Callable[[Truth], Truth]
    free_aborted: Callable[[Engine, Request, "Rules"], Engine]
    take_repeated_report: Callable[[Engine, str], Engine]
    restart_after_failed_load: Callable[..., Any]
    attention_blocks_offered: Callable[..., Any]
    tokens_sampled_by_prefill: Callable[..., Any]
    reported_id: Callable[[str], str]
    renews_lease: Callable[[Truth], Truth]
    frees_at_lease_end: Callable[[bool], bool]
    drop_registration: Callable[[State, str], State]
    decline_push: Callable[[Transfer], Transfer]
    tokens_offered: Callable[..., Any]
    # follow-up turns
    held_tokens_loaded: Callable[..., Any]
    cut_held_list: Callable[..., tuple[int, tuple[int, ...]]]
    asks_for_held: Callable[[bool], bool]
    # cache groups
    tokens_skipped_by_window: Callable[..., Any]
    tokens_skipped_by_state: Callable[..., Any]
    window_blocks_for_hit: Callable[..., Any]
    window_blocks_offered: Callable[..., Any]
    serves_a_hit: Callable[..., Any]
    is_retained: Callable[..., Any]
    matched_and_dropped: Callable[[int, int], tuple[int, ...]]
    matched_tokens: Callable[[int, int], int]
    longest_hit_tokens: Callable[..., Any]
    attention_blocks_predicted: Callable[..., Any]
    state_blocks_predicted: Callable[..., Any]
    align_chunk: Callable[..., Any]
    shared_prefix_boundary: Callable[[int, int], int]
    counted_after_hit: Callable[..., Any]
    caches_prompt_end: Callable[..., bool]
    counted_after_preemption: Callable[..., Any]
    cache_block: Callable[..., Engine]
    hashed_prefix: Callable[[str, int, int], str]
    hashed_tokens: Callable[..., Any]
    lookahead: Callable[[int], int]
    lookahead_at_admission: Callable[[int], int]
    tokens_to_cache: Callable[..., Any]
    computed_after_drafts: Callable[..., Any]
    states_kept: Callable[[int, int], int]
    allocate: Callable[..., tuple[Engine, tuple[int, ...]]]
    hit_holds: Callable[[Iterable[bool]], bool]
    settled_hit: Callable[[int, int], int]
    tokens_loaded_before_chunk: Callable[[int, int], int]
    states_superseded: Callable[..., Any]
    evictable_hit_blocks: Callable[[int], int]
    # hits inside a block
    tail_chunk: Callable[..., Any]
    split_block: Callable[[int, int], int]
    is_copied_first: Callable[[Block], bool]
    copies_predicted: Callable[[int], int]
    hit_fits_pool: Callable[[int, int], bool]
    run_step: Callable[..., tuple[Engine, tuple[Read, ...]]]
    filled_by_step: Callable[..., bool]
    # service order
    rank: Callable[[int, int], tuple[int, ...]]
    takes_a_place: Callable[[str], bool]
    runners_in_turn: Callable[[tuple[str, ...]], tuple[str, ...]]
    turns_left: Callable[[tuple[str, ...], int], tuple[str, ...]]
    forget_uncomputed: Callable[..., Engine]
    most_beside_others: Callable[[int, int], int]
    kept_at_admission: Callable[[int, bool], int]
    # reports to the worker
    keeps_its_place: Callable[[Request], bool]
    blocks_to_zero: Callable[[Group, Sequence[int], Sequence[int]], list[int]]
    # steps in flight
    settled_tokens: Callable[..., Any]
    placeholders_taken: Callable[[bool], int]
    placeholders_due: Callable[[int, bool], int]
    awaits_output: Callable[[Sequence[Flight]], bool]
    fate_of_preempted: Callable[[bool], str]
    void_steps: Callable[[Engine, str], Engine]
    uncache_missing: Callable[
        [Cluster, Engine, Request, tuple[int, ...], "Rules"], tuple[Engine, Request]
    ]
    free_behind_steps: Callable[[Engine, Request, "Rules"], Engine]
    stop_running: Callable[[Engine, str], Engine]
    wait_for_user: Callable[[Request], Request]
    serve_waiting: Callable[..., None]
    pool_is_idle: Callable[[Engine], bool]
    request_fits_pool: Callable[[int, int], bool]
    # pool
    touch_hits: Callable[[Engine, Iterable[int]], Engine]
    touch_and_take: Callable[
        [Engine, Sequence[Table], Sequence[int], "Rules"], tuple[Engine, list[Table]]
    ]
    forget_key: Callable[..., Engine]
    reports_removal: Callable[[int], bool]
    report_spans: Callable[[range, tuple[int, ...]], Any]
    references_dropped: Callable[..., Any]
    entries_queued: Callable[..., Any]

    def with_rule(self, name: str, function: Callable[..., Any]) -> "Rules":
        """These rules with one rule replaced. Raises TypeError where there is no rule of this
        name."""
        return dataclasses.replace(self, **{name: function})

    def differing_from(self, other: "Rules") -> list[str]:
        """The names of the rules that differ from another record, each with its module."""
        names = [f.name for f in dataclasses.fields(self)]
        changed = [n for n in names if getattr(self, n) != getattr(other, n)]
        return [f"{n} of {getattr(self, n).__module__}" for n in changed]
