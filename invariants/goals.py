"""Coverage goals: what a search must meet before its green result means anything. A check is not
tested where it never applies.

A goal is a decorated function, as a check is: its name is the id of the goal, and the type of its
last parameter is the kind of event. A step is asked only about the goals of its event.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias, get_type_hints

from kvproof.invariants.arithmetic import blocks_begun
from kvproof.invariants.hits import longest
from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.config.sides import giver, incoming, is_reverse
from kvproof.model.events import (
    Abort,
    Complete,
    Compute,
    Continue,
    Evict,
    FinishLoad,
    LeaseExpire,
    Preempt,
    ResetPrefixCache,
    ResetRunning,
    Schedule,
    StrayReport,
    Submit,
    TransferDone,
    TransferFail,
    TransferLost,
)
from kvproof.model.kv_events import Cleared, Removed, Stored
from kvproof.model.phases import Phase
from kvproof.model.state import (
    COUNTS,
    FAILED,
    LATE,
    LOADING,
    NULL,
    PREEMPTED,
    RUNNING,
    VOID,
    WAITING,
    Request,
)
from kvproof.model.step import Admission, Step

Seen: TypeAlias = Callable[[Cluster, Step, Any], bool]
"""Whether a step meets the goal. The last argument is the step's event."""

Possible: TypeAlias = Callable[[Cluster], object]
"""Whether the goal is possible with the options of a cluster."""


class Goal(NamedTuple):
    """A coverage goal.

    `name` is a sentence, and `kind` the class of its event. `met_in` is a preset in which a search
    meets it, and `not_met_in` one in which it does not. A search need not meet the goal in a
    cluster in which it is not `possible`.
    """

    id: str
    name: str
    kind: type
    seen: Seen
    met_in: str
    not_met_in: str
    possible: Possible


GOALS: dict[str, Goal] = {}
"""The goals by id, in the order of this module."""


def goal(
    name: str, met_in: str, not_met_in: str, possible: Possible = lambda _cluster: True
) -> Callable[[Seen], Seen]:
    """Declare a goal. Without `possible`, the goal is possible with all options of a cluster,
    though its traffic may rule it out."""

    def declare(seen: Seen) -> Seen:
        _, _, kind, _ = get_type_hints(seen).values()
        made = Goal(seen.__name__, name, kind, seen, met_in, not_met_in, possible)
        GOALS[made.id] = made
        return seen

    return declare


def goals_of(cluster: Cluster) -> tuple[Goal, ...]:
    """The goals that are possible with the options of a cluster."""
    return tuple(each for each in GOALS.values() if each.possible(cluster))


class OpenGoals:
    """The possible goals of a cluster that a search has not `met` yet."""

    def __init__(self, cluster: Cluster, met: Iterable[str] = ()) -> None:
        self.cluster = cluster
        self._by_kind: dict[type, list[Goal]] = {}
        known = set(met)
        for each in goals_of(cluster):
            if each.id not in known:
                self._by_kind.setdefault(each.kind, []).append(each)

    def met(self, step: Step) -> Iterator[str]:
        """The ids of the goals that a step meets."""
        for each in self._by_kind.get(type(step.event), ()):
            if each.seen(self.cluster, step, step.event):
                yield each.id

    def drop(self, name: str) -> None:
        """Do not look for this goal any more."""
        self._by_kind[GOALS[name].kind].remove(GOALS[name])


# What several goals ask.


def _some_engine(has: Callable[[EngineConfig], object]) -> Possible:
    """A goal's condition on a cluster: this must be true of some engine."""
    return lambda cluster: any(has(engine) for engine in cluster.engines)


def _pair_with(has: Possible) -> Possible:
    """A goal's condition on a cluster: it has P and D, and this must be true of it."""
    return lambda cluster: cluster.disaggregated and has(cluster)


def _has_hit(step: Step) -> bool:
    return any(admission.hit for admission in step.effects.admissions)


def _has_load(step: Step) -> bool:
    return any(admission.external for admission in step.effects.admissions)


def _lacks(cfg: EngineConfig, request: Request) -> int:
    """The blocks of attention groups that a request still needs for its tokens."""
    tables = request.tables or ((),) * len(cfg.groups)
    groups = ((g, t) for g, t in zip(cfg.groups, tables, strict=True) if g.attention)
    return sum(blocks_begun(len(request.tokens), g.block_size) - len(t) for g, t in groups)


def _without_blocks(requests: Iterable[Request]) -> list[Request]:
    """The requests that wait and hold no blocks."""
    return [r for r in requests if r.status in (WAITING, PREEMPTED) and not r.tables]


def _computed(step: Step, event: Schedule) -> Iterator[Request]:
    """The requests that computed tokens in this step, in their state after the step."""
    engine = step.after.engine(event.engine)
    for choice in event.chose or ():
        if isinstance(choice, Compute):
            yield engine.request(choice.request)


# Options that deployments set.


@goal(
    "a request is admitted though its whole prompt does not fit",
    *("first-chunk", "hybrid"),
    possible=_some_engine(lambda engine: engine.reserve_whole_prompt is False),
)
def admitted_by_first_chunk(cluster: Cluster, step: Step, event: Schedule) -> bool:
    cfg, after = cluster.engine(event.engine), step.after.engine(event.engine)
    admitted = (after.find(admission.request) for admission in step.effects.admissions)
    return cfg.reserve_whole_prompt is False and any(
        r is not None and _lacks(cfg, r) > len(after.free) for r in admitted
    )


@goal(
    "a long prefill leaves tokens of a step for another request",
    *("long-prefill", "full"),
    possible=_some_engine(lambda engine: engine.long_prefill_tokens),
)
def long_prefill_cut(cluster: Cluster, _step: Step, event: Schedule) -> bool:
    limit = cluster.engine(event.engine).long_prefill_tokens
    tokens = [c.tokens for c in event.chose or () if isinstance(c, Compute)]
    return limit > 0 and limit in tokens and len(tokens) > 1


@goal(
    "a request waits because of the watermark",
    *("watermark", "full"),
    possible=_some_engine(lambda engine: engine.watermark_blocks),
)
def held_back_by_watermark(cluster: Cluster, step: Step, event: Schedule) -> bool:
    """The waiting request is held back although the blocks for its tokens are free and the step has
    tokens left."""
    cfg, after = cluster.engine(event.engine), step.after.engine(event.engine)
    tokens = sum(c.tokens for c in event.chose or () if isinstance(c, Compute))
    fits = any(_lacks(cfg, r) <= len(after.free) for r in _without_blocks(after.requests))
    return cfg.watermark_blocks > 0 and fits and 0 < tokens < cfg.chunk_tokens


@goal(
    "a producer preempts a request whose output is in flight",
    *("pd-roles-preempting", "pd-async"),
    possible=_some_engine(lambda engine: engine.produces and engine.overlaps),
)
def producer_drops_output(cluster: Cluster, step: Step, event: Schedule) -> bool:
    before = step.before.engine(event.engine)
    preempted = (c.request for c in event.chose or () if isinstance(c, Preempt))
    return cluster.engine(event.engine).produces and any(map(before.flights, preempted))


# Async scheduling.

_async = _some_engine(lambda engine: engine.overlaps)


def _has_fate(step: Step, event: Complete, fate: str) -> bool:
    steps = step.before.engine(event.engine).steps
    return bool(steps) and any(flight.fate == fate for flight in steps[0])


@goal("a step is dispatched while another is in flight", "async-preempting", "full", _async)
def overlapping_steps(_cluster: Cluster, step: Step, event: Schedule) -> bool:
    before, after = step.before.engine(event.engine).steps, step.after.engine(event.engine).steps
    return len(after) > len(before) > 0


@goal(
    "a token arrives for a request that was preempted meanwhile",
    *("async-preempting", "full"),
    possible=_async,
)
def late_output(_cluster: Cluster, step: Step, event: Complete) -> bool:
    return _has_fate(step, event, LATE)


@goal("an output is dropped because its request has ended", "async-preempting", "full", _async)
def void_output(_cluster: Cluster, step: Step, event: Complete) -> bool:
    return _has_fate(step, event, VOID)


# What comes from outside.


@goal("a request is aborted while it runs", "oversized", "full", lambda cluster: cluster.aborts)
def aborted_run(_cluster: Cluster, step: Step, event: Abort) -> bool:
    request = step.before.engine(event.engine).find(event.request)
    return request is not None and request.status == RUNNING


@goal(
    "the cache entry of a free block is dropped",
    *("hybrid-evicting", "hybrid"),
    possible=lambda cluster: cluster.evictions,
)
def dropped_entry(_cluster: Cluster, _step: Step, _event: Evict) -> bool:
    return True


# Drafts: some are accepted, some are rejected, and a drafter with layers shortens hits.

_drafts = _some_engine(lambda engine: engine.drafts)


def _verified(step: Step, event: Complete) -> Iterator[tuple[str, int]]:
    """For each request whose output is kept: the number of drafts that the step verified."""
    engine = step.before.engine(event.engine)
    for name, _ in engine.step or ():
        yield name, engine.request(name).drafts
    for flight in engine.steps[0] if engine.steps else ():
        if flight.fate == COUNTS:
            yield flight.request, flight.drafts


@goal("a draft is accepted", "ngram-drafts", "full", _drafts)
def draft_accepted(_cluster: Cluster, _step: Step, event: Complete) -> bool:
    return bool(event.accepted)


@goal("a draft is rejected", "ngram-drafts", "full", _drafts)
def draft_rejected(_cluster: Cluster, step: Step, event: Complete) -> bool:
    right = event.accepted
    return any(drafts > right.get(name, 0) for name, drafts in _verified(step, event))


@goal(
    "a prompt hits in a group with a drafter's layers, without the last matched block",
    *("drafts-aligned", "ngram-drafts"),
    possible=_some_engine(lambda engine: engine.eagle_drop_tokens and engine.prefix_caching),
)
def hit_beside_drafter(cluster: Cluster, step: Step, event: Schedule) -> bool:
    return _has_hit(step) and cluster.engine(event.engine).eagle_drop_tokens > 0


# Embeddings, salts and adapters.


@goal(
    "a prompt of embeddings is admitted",
    *("pd-embeds", "pd-full"),
    possible=lambda cluster: any(job.embeds for job in cluster.jobs),
)
def embeddings_admitted(cluster: Cluster, step: Step, _event: Schedule) -> bool:
    return any(cluster.job(a.request).embeds for a in step.effects.admissions)


@goal(
    "a request with a salt or an adapter is admitted",
    *("extra-keys", "full"),
    possible=lambda cluster: any(job.extra_key for job in cluster.jobs),
)
def extra_key_admitted(cluster: Cluster, step: Step, _event: Schedule) -> bool:
    return any(cluster.job(a.request).extra_key for a in step.effects.admissions)


# Follow-up turns: P loads the tokens that D keeps of the earlier turn.


def _turns(cluster: Cluster) -> bool:
    return cluster.follow_up_turns


@goal("P loads the tokens that D keeps of the earlier turn", "turns", "pd-full", _turns)
def loaded_from_decode(cluster: Cluster, step: Step, _event: Schedule) -> bool:
    return any(
        a.external and is_reverse(incoming(cluster, a.engine, a.request))
        for a in step.effects.admissions
    )


@goal("D frees the blocks that it keeps for the next turn", "turns", "pd-losing", _turns)
def kept_until_lease_end(_cluster: Cluster, _step: Step, event: LeaseExpire) -> bool:
    return is_reverse(event.request)


# Cache groups beside full attention: of other block sizes, and states that are not cached.


def _mixes(engine: EngineConfig) -> bool:
    return len({g.attention for g in engine.groups}) > 1


def _has_unequal_blocks(engine: EngineConfig) -> bool:
    return len({g.block_size for g in engine.groups if g.attention or g.aligned}) > 1


@goal(
    "the worker erases new blocks of attention, beside Mamba groups",
    *("hybrid", "full"),
    possible=_some_engine(_mixes),
)
def block_erased(_cluster: Cluster, step: Step, _event: Schedule) -> bool:
    return bool(step.effects.zeroed)


@goal(
    "a load begins on an engine whose worker erases new blocks",
    *("pd", "hybrid"),
    possible=_some_engine(lambda engine: _mixes(engine) and engine.has_connector),
)
def load_beside_states(cluster: Cluster, step: Step, event: Schedule) -> bool:
    return _has_load(step) and _mixes(cluster.engine(event.engine))


@goal(
    "a hit holds in groups of unequal block sizes",
    *("unequal", "window-wide"),
    possible=_some_engine(lambda engine: _has_unequal_blocks(engine) and engine.prefix_caching),
)
def hit_of_unequal_blocks(cluster: Cluster, step: Step, event: Schedule) -> bool:
    return _has_hit(step) and _has_unequal_blocks(cluster.engine(event.engine))


@goal(
    "a request goes on from a state that is cached nowhere",
    *("state", "hybrid"),
    possible=_some_engine(lambda e: any(not (g.attention or g.aligned) for g in e.groups)),
)
def uncached_state_read(cluster: Cluster, step: Step, event: Schedule) -> bool:
    groups = cluster.engine(event.engine).groups
    found = (groups[read.group] for read in step.effects.reads)
    return any(not (group.attention or group.aligned) for group in found)


@goal(
    "a prompt hits where a hash covers the next token too",
    *("lookahead-hashes", "drafts"),
    possible=_some_engine(lambda engine: engine.hash_lookahead_tokens and engine.prefix_caching),
)
def hit_under_hash_lookahead(cluster: Cluster, step: Step, event: Schedule) -> bool:
    return cluster.engine(event.engine).hash_lookahead_tokens > 0 and _has_hit(step)


# KV events, which report to a listener what is cached.

_has_events = _some_engine(lambda engine: engine.kv_events)


@goal("one event reports several blocks in a row", "events", "full", _has_events)
def event_of_several_blocks(_cluster: Cluster, step: Step, _event: Schedule) -> bool:
    return any(isinstance(r, Stored) and len(r.prefixes) > 1 for r in step.effects.reports)


@goal("an event reports a key as removed", "events", "full-evicting", _has_events)
def event_of_removal(_cluster: Cluster, step: Step, _event: Schedule) -> bool:
    return any(isinstance(r, Removed) for r in step.effects.reports)


@goal(
    "an event reports that the cache is empty",
    *("events", "store"),
    possible=lambda cluster: _has_events(cluster) and cluster.resets,
)
def event_of_reset(_cluster: Cluster, step: Step, _event: ResetPrefixCache) -> bool:
    return any(isinstance(r, Cleared) for r in step.effects.reports)


# P and D with different numbers of tokens in a block.


def _unequal(cluster: Cluster) -> bool:
    return len({engine.physical_per_logical for engine in cluster.engines}) > 1


@goal("a transfer fills blocks from blocks of another size", "pd-ratio", "pd-full", _unequal)
def unequal_blocks_paired(cluster: Cluster, step: Step, event: TransferDone) -> bool:
    transfer = step.before.transfer(event.request)
    pairs = () if transfer is None else transfer.pairs
    return _unequal(cluster) and any(ours for ours, _ in pairs)


# Jobs that no engine can hold.


@goal(
    "a request is rejected because the engine can never hold it",
    *("oversized", "full"),
    possible=lambda cluster: cluster.oversized and not cluster.disaggregated,
)
def oversized_rejected(_cluster: Cluster, step: Step, event: Submit) -> bool:
    return step.after.engine(event.engine).find(event.request) is None


# Hits that end inside a block, and their copies.

_inside = _some_engine(lambda engine: engine.partial_block_hits)


@goal("a hit ends inside a block, and the block is copied", "partial", "hybrid", _inside)
def hit_inside_block(cluster: Cluster, step: Step, event: Schedule) -> bool:
    sizes = [g.block_size for g in cluster.engine(event.engine).groups]
    return any(a.hit % size for a in step.effects.admissions for size in sizes)


@goal(
    "a request continues from a cached state inside its block, and the block is copied",
    *("partial", "hybrid"),
    possible=_inside,
)
def cached_state_copied(_cluster: Cluster, step: Step, _event: Schedule) -> bool:
    """A copy in a step without a hit is a copy of a running state."""
    return bool(step.effects.copies) and not _has_hit(step)


# Prefix hits and evictions from the cache.

_caches = _some_engine(lambda engine: engine.prefix_caching)


def _is_longest(cluster: Cluster, admission: Admission) -> bool:
    """Whether a hit is the longest that leaves one token to compute."""
    known = len(admission.tokens)
    return admission.hit == longest(cluster.engine(admission.engine), known, known)


@goal("a prompt hits a part of its longest possible hit", "hybrid-siblings", "full", _caches)
def partial_hit(cluster: Cluster, step: Step, _event: Schedule) -> bool:
    return any(a.hit and not _is_longest(cluster, a) for a in step.effects.admissions)


@goal("a prompt hits its longest possible hit", "full", "state", _caches)
def full_hit(cluster: Cluster, step: Step, _event: Schedule) -> bool:
    return any(a.hit and _is_longest(cluster, a) for a in step.effects.admissions)


@goal("a step evicts a cached block", "full-evicting", "full", _caches)
def eviction(_cluster: Cluster, step: Step, event: Schedule) -> bool:
    before, after = step.before.engine(event.engine).cached, step.after.engine(event.engine).cached
    if before == after:
        return False
    kept = {(key, block) for key, blocks in after for block in blocks}
    return any((key, block) not in kept for key, blocks in before for block in blocks)


# Priority scheduling.


def _by_priority(cluster: Cluster) -> bool:
    return cluster.by_priority


@goal(
    "a request is admitted before an earlier request that still waits",
    *("priority", "full"),
    possible=_by_priority,
)
def overtaken(_cluster: Cluster, step: Step, event: Schedule) -> bool:
    """The earlier request has no blocks."""
    admitted = {admission.request for admission in step.effects.admissions}
    waits = False
    for request in step.after.engine(event.engine).requests:
        if request.id in admitted and waits:
            return True
        waits = waits or (request.status == WAITING and not request.tables)
    return False


@goal(
    "a request is preempted in the step that scheduled it",
    *("priority", "window"),
    possible=_by_priority,
)
def taken_out_of_step(_cluster: Cluster, _step: Step, event: Schedule) -> bool:
    scheduled = set()
    for choice in event.chose or ():
        if isinstance(choice, Compute):
            scheduled.add(choice.request)
        if isinstance(choice, Preempt) and choice.request in scheduled:
            return True
    return False


@goal(
    "a step preempts a request for another, and serves a third that runs",
    *("priority-async", "full"),
    possible=_by_priority,
)
def served_after_preemption(_cluster: Cluster, step: Step, event: Schedule) -> bool:
    """Another request is preempted for a running request, and a later running request is served."""
    choices = event.chose or ()
    needy = {c.needy for c in choices if isinstance(c, Preempt) and c.request != c.needy}
    served = [c.request for c in choices if isinstance(c, Compute)]
    running = step.before.engine(event.engine).running
    after = [name for first in needy & set(served) for name in served[served.index(first) + 1 :]]
    return any(name in running for name in after)


# P writes to D's blocks: the engine that is ready first waits for the other.


@goal(
    "D has registered its blocks before P has finished",
    *("push-full", "pd-full"),
    possible=lambda cluster: cluster.pushes,
)
def push_registered_first(_cluster: Cluster, step: Step, event: Schedule) -> bool:
    return any(
        transfer is not None and transfer.phase is Phase.REGISTERED
        for admission in step.effects.admissions
        for transfer in [step.after.transfer(admission.request)]
        if admission.engine == event.engine
    )


@goal(
    "P's lease expires while it writes",
    *("push-leases", "push-full"),
    possible=lambda cluster: cluster.pushes and cluster.losses,
)
def push_after_lease(_cluster: Cluster, step: Step, event: LeaseExpire) -> bool:
    transfer = step.after.transfer(event.request)
    return transfer is not None and transfer.phase is Phase.OVERDUE


# No more requests run at a time than `max_requests`.


@goal(
    "a request waits, for as many run as may",
    *("pd-limited", "pd-full"),
    possible=lambda cluster: any(e.max_requests < len(cluster.jobs) for e in cluster.engines),
)
def held_up_by_limit(cluster: Cluster, step: Step, event: Schedule) -> bool:
    """A request waits without blocks while as many requests run as may run."""
    engine = step.after.engine(event.engine)
    most = cluster.engine(event.engine).max_requests
    return bool(_without_blocks(engine.requests)) and len(engine.running) >= most


# Resets of the prefix cache.


def _under_load(cluster: Cluster) -> bool:
    return cluster.resets_any_time


@goal(
    "the prefix cache is emptied",
    *("resetting", "full"),
    possible=lambda cluster: cluster.resets or cluster.resets_any_time,
)
def reset(_cluster: Cluster, step: Step, event: ResetPrefixCache) -> bool:
    return not step.after.engine(event.engine).cached


@goal("a reset is refused because blocks are in use", "resetting", "store", _under_load)
def reset_refused(_cluster: Cluster, step: Step, event: ResetPrefixCache) -> bool:
    return bool(step.after.engine(event.engine).cached)


@goal(
    "all running requests are preempted, and the cache is emptied",
    *("resetting", "store"),
    possible=_under_load,
)
def reset_with_preemption(_cluster: Cluster, _step: Step, _event: ResetRunning) -> bool:
    return True


# Sparse retention: only some blocks of window and Mamba groups stay in the cache.

_sparse = _some_engine(lambda engine: engine.retention is not None)


@goal(
    "a prompt hits although most window and state blocks were not kept",
    *("sparse-hybrid", "hybrid"),
    possible=_sparse,
)
def hit_under_retention(cluster: Cluster, step: Step, event: Schedule) -> bool:
    return cluster.engine(event.engine).retention is not None and _has_hit(step)


@goal(
    "a full block of a window or Mamba group is not cached",
    *("sparse-hybrid", "hybrid"),
    possible=_sparse,
)
def block_not_retained(cluster: Cluster, step: Step, event: Schedule) -> bool:
    cfg, engine = cluster.engine(event.engine), step.after.engine(event.engine)
    if cfg.retention is None:
        return False
    for request in engine.requests:
        for group, table, counted in zip(
            cfg.groups, request.tables, request.num_cached_blocks, strict=False
        ):
            looked_at = [b for b in table[:counted] if b != NULL]
            if group.kind != "full" and any(engine.blocks[b].key is None for b in looked_at):
                return True
    return False


# The basic cases of a scheduler: full pools, preemptions, chunked prompts, freed blocks.


@goal("a running request loses its blocks to another", "window", "full")
def preemption(_cluster: Cluster, _step: Step, event: Schedule) -> bool:
    return any(isinstance(choice, Preempt) for choice in event.chose or ())


@goal("an admission leaves no block free", "full", "full-evicting")
def pool_filled(_cluster: Cluster, step: Step, event: Schedule) -> bool:
    return bool(step.effects.admissions) and not step.after.engine(event.engine).free


@goal("a step ends inside a prompt", "hybrid-siblings", "full")
def chunked_prefill(_cluster: Cluster, step: Step, event: Schedule) -> bool:
    return any(r.computed < len(r.prompt) for r in _computed(step, event))


@goal(
    "a state is cached at a shared prefix boundary",
    *("hybrid-siblings", "full"),
    possible=_some_engine(lambda engine: engine.aligned_group and engine.prefix_caching),
)
def shared_prefix_boundary_kept(cluster: Cluster, step: Step, event: Schedule) -> bool:
    engine = step.after.engine(event.engine)
    for request in _computed(step, event):
        boundary = request.shared_prefix_boundary
        if boundary and request.computed == boundary:
            for index, group in enumerate(cluster.engine(event.engine).groups):
                if group.aligned and engine.blocks_for((index, request.tokens[:boundary])):
                    return True
    return False


@goal(
    "a request frees blocks that its layers no longer read",
    *("window", "full"),
    possible=_some_engine(lambda e: any(g.kind == "window" or g.aligned for g in e.groups)),
)
def left_behind(_cluster: Cluster, _step: Step, event: Schedule) -> bool:
    return any(isinstance(c, Compute) and any(c.freed) for c in event.chose or ())


# Sessions: jobs whose prompt arrives in several parts.


def _sessions(cluster: Cluster) -> bool:
    return cluster.sessions


@goal("the next part of a session's prompt arrives", "sessions", "full", _sessions)
def session_continued(_cluster: Cluster, step: Step, event: Continue) -> bool:
    return step.after.engine(event.engine).find(event.request) is not None


@goal("a waiting session loses its blocks to another session", "sessions", "window", _sessions)
def session_gave_way(_cluster: Cluster, step: Step, event: Schedule) -> bool:
    engine = step.before.engine(event.engine)
    victims = (c.request for c in event.chose or () if isinstance(c, Preempt))
    return any(engine.request(name).status != RUNNING for name in victims)


# An external store of an engine.

_store = _some_engine(lambda engine: engine.store)


@goal("a store loads tokens that the cache has lost", "store", "full", _store)
def loaded_from_store(cluster: Cluster, step: Step, event: Schedule) -> bool:
    return _has_load(step) and cluster.engine(event.engine).store


@goal(
    "a store fails to load what a step needs",
    *("store-failing", "store"),
    possible=lambda cluster: _store(cluster) and cluster.failures > 0,
)
def store_load_failed(_cluster: Cluster, _step: Step, event: Complete) -> bool:
    return bool(event.failed)


# KV transfers from P to D, and their failures.


@goal(
    "a worker reports a transfer a second time, or a request that is gone",
    *("pd-stray", "pd-full"),
    possible=_pair_with(lambda cluster: cluster.stray),
)
def stray_report(_cluster: Cluster, _step: Step, _event: StrayReport) -> bool:
    return True


def _reads_fail(cluster: Cluster) -> bool:
    """Whether a read may fail or be refused: P's read of the tokens that D kept is refused after
    the lease expired."""
    return cluster.failures > 0 or cluster.follow_up_turns


def _somebody_waits(cluster: Cluster) -> bool:
    """Whether a waiting engine may get no answer: transfers may be lost, may fail, or are pushed.
    Otherwise each waiting engine gets one."""
    return cluster.losses or _reads_fail(cluster) or cluster.pushes


@goal(
    "P offers more blocks than D reads",
    *("pd-full", "pd-embeds"),
    possible=_pair_with(lambda cluster: cluster.decode.prefix_caching),
)
def trimmed_transfer(cluster: Cluster, step: Step, _event: Schedule) -> bool:
    for admission in step.effects.admissions:
        name = incoming(cluster, admission.engine, admission.request)
        transfer = step.after.transfer(name) if admission.external else None
        if transfer is None:
            continue
        p = giver(cluster, name).engine
        for group, remote, (_, theirs) in zip(
            p.groups, transfer.remote, transfer.pairs, strict=False
        ):
            if group.attention and 0 < len(theirs) < len(remote) * p.physical_per_logical:
                return True
    return False


@goal(
    "P truncates a prompt for D",
    *("pd-embeds", "hybrid"),
    possible=_pair_with(lambda cluster: cluster.prefill.has_state),
)
def truncation(_cluster: Cluster, step: Step, event: Submit) -> bool:
    request = step.after.engine(event.engine).find(event.request)
    return request is not None and len(request.prompt) < request.submitted_prompt_tokens


@goal("a read fails", "pd-failing", "pd-full", _pair_with(_reads_fail))
def failed_load(_cluster: Cluster, _step: Step, _event: TransferFail) -> bool:
    return True


@goal(
    "a request computes its prompt itself after its load failed",
    *("pd-recomputing", "pd-failing"),
    possible=_pair_with(lambda c: c.failures > 0 and c.load_failure == "recompute"),
)
def recomputed_load(_cluster: Cluster, step: Step, event: Schedule) -> bool:
    engine = step.before.engine(event.engine)
    ended = [c.request for c in event.chose or () if isinstance(c, FinishLoad)]
    return any(engine.request(name).status == FAILED for name in ended)


@goal(
    "the end of a read is never reported",
    *("pd-losing", "pd-full"),
    possible=_pair_with(lambda cluster: cluster.losses and not cluster.pushes),
)
def lost_load(_cluster: Cluster, _step: Step, _event: TransferLost) -> bool:
    return True


@goal(
    "a request is aborted while it loads",
    *("pd-losing", "pd-full"),
    possible=_pair_with(lambda cluster: cluster.aborts),
)
def aborted_load(_cluster: Cluster, step: Step, event: Abort) -> bool:
    request = step.before.engine(event.engine).find(event.request)
    return request is not None and request.status == LOADING


@goal(
    "the lease of blocks that one engine keeps for the other expires",
    *("pd-losing", "pd-full"),
    possible=_pair_with(_somebody_waits),
)
def lease_expiry(_cluster: Cluster, _step: Step, _event: LeaseExpire) -> bool:
    return True
