"""Requests that wait for ever, or hold what others wait for."""

from kvproof.live.known.facts import HANGS, seen
from kvproof.model.arithmetic import counts
from kvproof.model.because import About
from kvproof.model.capacity import can_hold, has_room_for_hit, reserved_blocks
from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.config.sides import reverse_of
from kvproof.model.known_finding import known_finding
from kvproof.model.phases import Phase
from kvproof.model.state import (
    ABORTED,
    FAILED,
    LOADED,
    LOADING,
    NULL,
    PREEMPTED,
    RUNNING,
    WAITING,
    Engine,
    Request,
    State,
)
from kvproof.model.step import Step

WAITS = (WAITING, PREEMPTED)
HOLDS_A_LOAD = (LOADING, LOADED, *WAITS)
HOLDS_BLOCKS_OF_A_LOAD = (LOADING, LOADED, FAILED)


@known_finding(
    in_vllm="Scheduler._request_remaining_blocks",
    says="two loads take the last blocks, and each then needs one more, for a copy of its state",
    signatures=seen("step_makes_progress", "Schedule") | HANGS,
)
def copy_of_load_not_reserved(cluster: Cluster, step: Step, _about: About) -> bool:
    """A loaded state that ends inside a block is cached, so the request needs a copy of it to go
    on. While the request loads, vLLM keeps no block free for this copy, and another load takes it.

    Cause: No request of an engine runs. One that has loaded tokens up to the inside of a block of
    states waits with its blocks, and so does another one, which loads or has loaded.
    """
    for engine in step.after.engines:
        cfg = cluster.engine(engine.name)
        state = cfg.aligned_group
        if engine.running or state is None or not cfg.partial_block_hits:
            continue
        holding = _holding_loads(engine)
        waits = (r for r in holding if r.status in WAITS)
        if len(holding) > 1 and any((r.hit + r.external) % state.block_size for r in waits):
            return True
    return False


def _holding_loads(engine: Engine) -> list[Request]:
    """The requests that hold blocks of a load, during it or after it, and do not run."""
    holding = (r for r in engine.requests if any(r.tables) and r.external)
    return [r for r in holding if r.status in HOLDS_A_LOAD]


@known_finding(
    says="a request whose load failed keeps its place before requests that hold loaded blocks",
    signatures=HANGS,
)
def failed_load_holds_the_queue(cluster: Cluster, step: Step, _about: About) -> bool:
    """A request whose load failed keeps its place before requests that hold what they have loaded.
    If it does not fit, the step ends at it, and nobody behind it runs.

    Cause: A load has failed under the policy `recompute`. No request runs, one waits without
    blocks, and one that arrived later holds blocks for a load.
    """
    if cluster.load_failure != "recompute" or not step.after.failures:
        return False
    for engine in step.after.engines:
        waits = False
        for request in () if engine.running else engine.requests:
            if waits and request.status in HOLDS_BLOCKS_OF_A_LOAD:
                return True
            waits = waits or (request.status in (WAITING, PREEMPTED) and not request.tables)
    return False


@known_finding(
    says="a request whose hit or load ends inside a block, and lacks room for it, waits for ever",
    signatures=seen("step_makes_progress", "Schedule") | HANGS,
)
def hit_without_room_waits(cluster: Cluster, step: Step, _about: About) -> bool:
    """A request with a hit inside a block needs one block more than without the hit, and so does
    one that has loaded or computed its tokens up to the inside of a block, whose state is cached
    there. If the pool has no room for this block, vLLM does not try a shorter hit, and no shorter
    load; a request that runs alone is preempted, and computes the same part again.

    Cause: A waiting request can hit inside a block, or has loaded tokens up to there, or one that
    runs alone has computed them, and the empty pool has no room for the copy.
    """
    for engine in step.after.engines:
        cfg = cluster.engine(engine.name)
        for request in engine.requests if cfg.partial_block_hits else ():
            waits = request.status in (WAITING, PREEMPTED) and not request.tables
            lengths = {len(key[1]) for key, _ in engine.cached if request.tokens.startswith(key[1])}
            tokens = len(request.tokens)
            if waits and any(not has_room_for_hit(cfg, n, tokens) for n in lengths if n < tokens):
                return True
            runs = request.status == RUNNING and _is_alone(engine, request)
            computed = request.tokens[: request.computed]
            kept = any(
                group.aligned and len(computed) % group.block_size and key == (index, computed)
                for index, group in enumerate(cfg.groups)
                for key, _ in engine.cached
            )
            if runs and kept and not has_room_for_hit(cfg, len(computed), tokens):
                return True
    return _loaded(cluster, step)


def _loaded(cluster: Cluster, step: Step) -> bool:
    """Whether vLLM refuses blocks to a request that has loaded tokens up to the inside of a block
    of states, and that lacks only the copies of these states: no other request holds a block."""
    for refusal in step.effects.refused:
        cfg, engine = cluster.engine(refusal.engine), step.after.engine(refusal.engine)
        request = engine.find(refusal.request)
        if request is None or not (request.external and cfg.partial_block_hits):
            continue
        end = request.hit + request.external
        copies = sum(g.aligned and end % g.block_size > 0 for g in cfg.groups)
        if _is_alone(engine, request) and 0 < refusal.needed - refusal.free <= copies:
            return True
    return False


def _is_alone(engine: Engine, request: Request) -> bool:
    others = (r for r in engine.requests if r.id != request.id)
    return all(block == NULL for r in others for table in r.tables for block in table)


@known_finding(
    says=(
        "a request that the empty pool cannot hold is queued, and all requests behind it "
        "wait for ever"
    ),
    signatures=seen("step_makes_progress", "Schedule") | HANGS,
)
def impossible_fit_waits(cluster: Cluster, step: Step, _about: About) -> bool:
    """The scheduler does not reject a request that the whole pool cannot hold.

    Cause: A request waits, or is preempted repeatedly, and an engine without other requests may not
    be able to hold it.
    """
    return cluster.oversized and any(
        r.status in (WAITING, PREEMPTED, RUNNING) and not can_hold(cluster.engine(engine.name), r)
        for engine in step.after.engines
        for r in engine.requests
    )


@known_finding(
    says="an engine with a drafter never begins a load that needs the last blocks of the pool",
    signatures=HANGS,
)
def load_keeps_room_for_drafts(cluster: Cluster, step: Step, _about: About) -> bool:
    """To begin a load, vLLM asks for the blocks of a step with drafts in addition to the blocks of
    the load, although the last block of the load may have room for the drafts.

    Cause: An engine has a drafter, no request on it will give blocks back, and a request waits to
    load.
    """
    return cluster.disaggregated and any(
        cluster.engine(engine.name).drafts and _waits_to_load(cluster, step.after, engine)
        for engine in step.after.engines
    )


def _waits_to_load(cluster: Cluster, state: State, engine: Engine) -> bool:
    """Whether no request holds blocks, except requests whose read was lost, and a request waits to
    load although the blocks of its load are free, because the blocks of a step with drafts are not
    free in addition. P asks for the blocks that D kept even when they are gone."""
    cfg = cluster.engine(engine.name)
    idle = [r for r in engine.requests if r.status in (WAITING, PREEMPTED) and not r.tables]
    spare = len(engine.free) - _of_step(cfg)
    idle = [r for r in idle if reserved_blocks(cfg, len(r.tokens)) > spare]
    lost = {t.request for t in state.transfers if t.phase == Phase.LOST}
    others = [r for r in engine.requests if r.id not in lost]
    if any(b != NULL for r in others for table in r.tables for b in table):
        return False
    if engine.name == cluster.prefill.name:
        turns = [cluster.job(r.id).follows for r in idle]
        return any(turn and state.transfer(reverse_of(turn)) is not None for turn in turns)
    offered = {t.request for t in state.transfers if t.phase in (Phase.OFFERED, Phase.AWAITED)}
    return any(r.id in offered for r in idle)


def _of_step(cfg: EngineConfig) -> int:
    """The largest number of blocks that a step with drafts takes: for its tokens and the lookahead
    slots after them."""
    tokens = 1 + 2 * cfg.drafts
    return sum(1 + int(counts.blocks_for_tokens(tokens, group.block_size)) for group in cfg.groups)


@known_finding(
    says="waiting sessions keep the blocks that other sessions wait for, and no request runs",
    signatures=seen("step_makes_progress", "Schedule") | HANGS,
)
def waiting_sessions_hold_on(cluster: Cluster, step: Step, _about: About) -> bool:
    """vLLM preempts only running requests. Sessions that wait for room keep their blocks, and later
    requests are not admitted before them.

    Cause: No request runs, and a waiting session holds blocks.
    """
    return cluster.sessions and any(
        not engine.running and any(r.tables and r.status == WAITING for r in engine.requests)
        for engine in step.after.engines
    )


@known_finding(
    in_vllm="SingleTypeKVCacheManager.get_num_blocks_to_allocate",
    says="behind a window, no block of it is kept free for a load, and another load takes it",
    signatures=seen("step_makes_progress", "Schedule") | HANGS,
)
def window_of_load_not_reserved(cluster: Cluster, step: Step, _about: About) -> bool:
    """Behind a sliding window, vLLM counts no block of the window's group among those that a
    loading request will still need, and another load takes it.

    Cause: No request of an engine runs. One that has loaded tokens, and whose windows have let some
    go, waits with its blocks. It lacks no more blocks than it has such windows. Another one loads,
    or has loaded, and holds blocks too.
    """
    for refusal in step.effects.refused:
        engine = step.after.engine(refusal.engine)
        request = engine.find(refusal.request)
        if request is None or engine.running or request.status not in WAITS:
            continue
        groups = cluster.engine(engine.name).groups
        tables = zip(groups, request.tables, strict=False)
        windows = sum(g.kind == "window" and t[:1] == (NULL,) for g, t in tables)
        holding = _holding_loads(engine)
        lacks = refusal.needed - refusal.free
        if request in holding and len(holding) > 1 and 0 < lacks <= windows:
            return True
    return False


@known_finding(
    says="D waits for ever for a write that will never come",
    signatures=HANGS,
)
def write_awaited_for_ever(cluster: Cluster, step: Step, _about: About) -> bool:
    """D waits without limit for P's write, although P does not have the request any more, or its
    write failed.

    Cause: D keeps blocks for a write, and P does not have the request, or its write failed.
    """
    if not cluster.pushes:
        return False
    d, p = (step.after.engine(e.name) for e in (cluster.decode, cluster.prefill))
    for request in d.requests:
        transfer = step.after.transfer(request.id)
        failed = transfer is None or transfer.phase == Phase.ABANDONED
        if request.status in (LOADING, ABORTED) and (failed or p.find(request.id) is None):
            return True
    return False
