"""The NIXL pull connector, seen from both schedulers and from the worker that pairs block lists.

Sources: `NixlPullConnectorScheduler` (`get_num_new_matched_tokens`, `update_state_after_alloc`,
`request_finished`), `NixlBaseConnectorScheduler` (`_truncate_request_for_prefill`,
`get_exchange_clipped_blocks`) and the worker's `_apply_prefix_caching`.
"""

from kvproof.model import config, coordinator, in_flight, memory, store
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Admit
from kvproof.model.rules import Rules
from kvproof.model.state import (
    ABORTED,
    FAILED,
    LOADED,
    LOADING,
    NULL,
    SENDING,
    VOID,
    Engine,
    Lists,
    Request,
    State,
    Transfer,
)

Pair = tuple[tuple[int, ...], tuple[int, ...]]


def kinds(cfg: config.Engine) -> tuple[str, ...]:
    """The kinds of the cache groups."""
    return tuple(g.kind for g in cfg.groups)


def truncated(cfg: config.Engine, request: Request, rules: Rules) -> Request:
    """On P, the request shortened by the tokens D computes itself."""
    if request.route != "to_decode":
        return request
    backoff = rules.backoff_on_prefill(kinds(cfg), request.embeds)
    done = len(request.prompt) < request.asked
    length = rules.prompt_after_truncation(len(request.prompt), backoff, done)
    return request._replace(prompt=request.prompt[:length])


def asked_again(cfg: config.Engine, request: Request, rules: Rules) -> Request:
    """The request after the connector is asked about it; it may have been asked before."""
    return truncated(cfg, request, rules) if request.preemptions else request


def emptied(request: Request) -> Request:
    """The request without blocks and progress."""
    return request._replace(
        tables=(),
        counted=(),
        computed=0,
        hit=0,
        external=0,
        junction=0,
        shared=0,
        drafts=0,
        states=(),
    )


def loadable(cluster: config.Cluster, state: State, request: Request, rules: Rules) -> int:
    """Tokens that P offers to D for this request, or the store to its engine."""
    if cluster.decode.store:
        return store.offered(state.engine(cluster.decode.name).stored, request.tokens)
    transfer = state.transfer(request.id)
    if request.route != "from_prefill" or transfer is None or transfer.phase != "offered":
        return 0
    if request.embeds and not rules.loads_embeddings():
        return 0
    backoff = rules.backoff_on_decode(kinds(cluster.decode))
    return int(rules.tokens_loaded_by_decode(len(request.prompt), backoff))


def check_external(
    cluster: config.Cluster,
    state: State,
    engine: Engine,
    request: Request,
    choice: Admit,
    rules: Rules,
) -> None:
    """D loads all that P or a store offers beyond its own hit."""
    offered = loadable(cluster, state, request, rules)
    rest = max(offered - choice.local_hit, 0)
    if choice.external == rest:
        return
    full = coordinator.longest_full(cluster.decode, engine, request.tokens, rules)
    gives_up = rules.full_hit_gives_up_load() and not cluster.decode.store
    if choice.external == 0 and full >= offered and gives_up:
        return
    raise NotAllowed(f"{request.id} loads {choice.external} tokens where {rest} are offered")


def best_admission(
    cluster: config.Cluster,
    cfg: config.Engine,
    state: State,
    engine: Engine,
    request: Request,
    rules: Rules,
) -> tuple[int, int]:
    """The hit and the external tokens that spare the most work."""
    request = asked_again(cfg, request, rules)
    together = 0
    if cfg.prefix_caching:
        together = coordinator.longest_together(cfg, engine, request.tokens, rules)
    offered = loadable(cluster, state, request, rules)
    hit = together
    shared = cfg.prefix_caching and not cfg.store and not rules.decode_hit_needs_every_group()
    if together < offered and shared:
        # At least one token is left to the connector: the states come with it.
        full = coordinator.longest_full(cfg, engine, request.tokens, rules)
        if full >= offered and rules.full_hit_gives_up_load():
            return together, 0
        if rules.deeper_hit_gives_up_local() and coordinator.deeper(
            cfg, engine, request.tokens, rules
        ):
            full = together
        hit = max(together, min(full, rules.longest_hit_tokens(offered, cfg.hit_unit)))
    return hit, max(offered - hit, 0)


def offered_lists(cfg: config.Engine, request: Request, rules: Rules) -> Lists:
    """The block lists P offers: attention up to the computed tokens (of a window only its tail),
    of a Mamba group the slot that holds the state."""
    lists = []
    for index, group in enumerate(cfg.groups):
        table = request.tables[index]
        if group.kind == "mamba":
            lists.append(_state_slots(_without_scratch(cfg, table), rules))
            continue
        table = table[: int(rules.attention_blocks_offered(request.computed, group.block_size))]
        if group.kind == "window":
            table = table[-int(rules.window_blocks_offered(group.window, group.block_size)) :]
        lists.append(table)
    return tuple(lists)


def _without_scratch(cfg: config.Engine, blocks: tuple[int, ...]) -> tuple[int, ...]:
    """A list of a Mamba group without the blocks for the states of drafts, which are its last."""
    return blocks[: max(len(blocks) - cfg.drafts, 1)]


def _state_slots(blocks: tuple[int, ...], rules: Rules) -> tuple[int, ...]:
    return blocks[len(blocks) - int(rules.state_slots_moved(len(blocks))) :]


def _kernel(blocks: tuple[int, ...], ratio: int) -> tuple[int, ...]:
    return tuple(block * ratio + part for block in blocks for part in range(ratio))


def paired(
    cluster: config.Cluster, engine: Engine, request: Request, transfer: Transfer, rules: Rules
) -> Transfer:
    """The transfer with D's fresh blocks, paired with P's kernel block by kernel block. A request
    that loads nothing has no fresh blocks and must be paired with nothing."""
    p, d = cluster.prefill, cluster.decode
    local: list[tuple[int, ...]] = []
    pairs: list[Pair] = []
    for index, group in enumerate(d.groups):
        table = request.tables[index]
        fresh = tuple(b for b in table if b != NULL and engine.blocks[b].key is None)
        if not request.external:
            fresh = ()
        remote = transfer.remote[index]
        if group.kind == "mamba":
            fresh = _state_slots(_without_scratch(d, fresh), rules)
            pairs.append((fresh, _state_slots(remote, rules) if fresh else ()))
            local.append(fresh)
            continue
        if group.kind == "window":
            fresh = fresh[-int(rules.window_blocks_offered(group.window, group.block_size)) :]
        ours = _kernel(fresh, d.physical_per_logical)
        theirs = _kernel(remote, p.physical_per_logical)
        block_size = p.groups[index].block_size
        remote_blocks = int(rules.attention_blocks_offered(transfer.tokens, block_size))
        a, b, c, e = rules.trim(
            (len(table) - len(fresh)) * d.physical_per_logical,
            len(ours),
            (remote_blocks - len(remote)) * p.physical_per_logical,
            len(theirs),
            d.physical_per_logical == p.physical_per_logical,
        )
        pairs.append((ours[a:b], theirs[c:e]))
        local.append(fresh)
    return transfer._replace(local=tuple(local), pairs=tuple(pairs))


def start_load(cluster: config.Cluster, state: State, name: str, rules: Rules) -> State:
    """D's blocks for external tokens are allocated: the read begins."""
    engine = state.engine(cluster.decode.name)
    request = engine.request(name)._replace(status=LOADING)
    transfer = state.transfer(name)
    if transfer is None:
        raise NotAllowed(f"{name} loads and nothing is offered")
    transfer = paired(cluster, engine, request, transfer, rules)._replace(phase="reading")
    for index, group in enumerate(cluster.decode.groups):
        ratios = (cluster.decode.physical_per_logical, cluster.prefill.physical_per_logical)
        slots = (len(transfer.local[index]) * ratios[0], len(transfer.remote[index]) * ratios[1])
        if group.attention and not rules.lists_can_be_paired(*slots, *ratios):
            engine = engine._replace(dead=f"lists of {slots[0]} and {slots[1]} blocks do not pair")
    return state.putting(engine.having(request)).moving(name, transfer)


def declined(cluster: config.Cluster, state: State, name: str, rules: Rules) -> State:
    """D was admitted without a load, or left before it: it only tells P so."""
    transfer = state.transfer(name)
    if transfer is None or transfer.phase != "offered":
        return state
    engine = state.engine(cluster.decode.name)
    request = engine.find(name)
    if request is not None and request.tables:
        transfer = paired(cluster, engine, request, transfer, rules)
    return state.moving(name, transfer._replace(phase="telling"))


def finish(cfg: config.Engine, state: State, request: Request, rules: Rules) -> State:
    """A request has all its tokens. On P its blocks stay for D to read."""
    engine = state.engine(cfg.name)
    if cfg.has_connector:
        needed = in_flight.settled(engine, request, rules)
        if request.route == "to_decode":
            needed = int(rules.needed_from_load(needed, request.asked))
        engine, request = coordinator.release_skipped(cfg, engine, request, rules, needed)
    state = state.ending(cfg.name, request.id)
    engine = in_flight.let_down(engine, request.id, VOID)
    if request.route == "to_decode":
        engine = engine.having(request._replace(status=SENDING, drafts=0, states=()))
        if rules.finished_leaves_running():
            engine = engine._replace(running=tuple(r for r in engine.running if r != request.id))
        lists = offered_lists(cfg, request, rules)
        offer = Transfer(request.id, "offered", request.computed, lists)
        return state.putting(engine).moving(request.id, offer)
    engine = in_flight.give_back(cfg, engine, request, rules).without(request.id)
    return state.putting(engine)


def leave(
    cluster: config.Cluster, cfg: config.Engine, state: State, request: Request, rules: Rules
) -> State:
    """A request ends before its time: by its user, or because its load failed."""
    engine = state.engine(cfg.name)
    if cfg.has_connector:
        settled = in_flight.settled(engine, request, rules)
        engine, request = coordinator.release_skipped(cfg, engine, request, rules, settled)
    engine = in_flight.let_down(engine, request.id, VOID)
    state = state.ending(cfg.name, request.id)
    if request.status == LOADING and not rules.frees_while_loading():
        running = tuple(r for r in engine.running if r != request.id)
        engine = engine.having(request._replace(status=ABORTED))._replace(running=running)
        return state.putting(engine)
    engine = in_flight.give_back(cfg, engine, request, rules).without(request.id)
    return declined(cluster, state.putting(engine), request.id, rules)


def _producer_done(cluster: config.Cluster, state: State, name: str, rules: Rules) -> State:
    engine = state.engine(cluster.prefill.name)
    request = engine.find(name)
    if request is None or request.status != SENDING:
        return state
    engine = coordinator.release_all(engine, request, rules).without(name)
    return state.putting(engine)


def transfer_done(cluster: config.Cluster, state: State, name: str, rules: Rules) -> State:
    """D has read everything; P may free. An aborted reader frees now."""
    transfer = state.transfer(name)
    if transfer is None or transfer.phase not in ("reading", "telling"):
        raise NotAllowed(f"{name} has no transfer that could end")
    if transfer.phase == "reading":
        p, d = cluster.prefill, cluster.decode
        sink = memory.copy(state.engine(p.name), state.engine(d.name), p, d, transfer.pairs)
        request = sink.find(name)
        if request is not None and request.status == ABORTED:
            if rules.frees_after_aborted_load():
                sink = coordinator.release_all(sink, request, rules)
            sink = sink.without(name)
        elif request is not None:
            sink = sink.having(request._replace(status=LOADED))
        state = state.putting(sink)
    state = state.moving(name, None)
    return _producer_done(cluster, state, name, rules) if rules.hears_of_finished_read() else state


def transfer_failed(cluster: config.Cluster, state: State, name: str, rules: Rules) -> State:
    """D could not read. By policy its request fails, or computes the prompt itself."""
    transfer = state.transfer(name)
    if transfer is None or transfer.phase != "reading":
        raise NotAllowed(f"{name} has no read that could fail")
    state = state.moving(name, transfer._replace(phase="abandoned", local=(), pairs=()))
    state = state._replace(failures=state.failures + 1)
    engine = state.engine(cluster.decode.name)
    request = engine.find(name)
    if request is None:
        return state
    if request.status == ABORTED or cluster.load_failure == "fail":
        return leave(cluster, cluster.decode, state, request._replace(status=FAILED), rules)
    status = FAILED if rules.wakes_after_failed_load() else LOADING
    return state.putting(engine.having(request._replace(status=status, computed=0)))


def told_before(state: State, engine: Engine, name: str) -> bool:
    """Whether the end of a request's transfer on this engine was reported, or the request is gone:
    nobody waits for another report."""
    request = engine.find(name)
    if request is None:
        return (engine.name, name) in state.ended
    return bool(request.external) and request.status not in (LOADING, ABORTED, SENDING)


def stray_report(state: State, engine_name: str, name: str, rules: Rules) -> State:
    """A report nobody waits for changes nothing."""
    engine = state.engine(engine_name)
    request = engine.find(name)
    if not told_before(state, engine, name):
        raise NotAllowed(f"no transfer of {name} on {engine_name} was reported before")
    not_taken_over = request is not None and request.status in (LOADED, FAILED)
    if not_taken_over or rules.ignores_stray_reports():
        return state
    return state.putting(engine._replace(dead=f"nobody waits for a report on {name}"))


def transfer_lost(state: State, name: str) -> State:
    """The end of a read will never be reported."""
    transfer = state.transfer(name)
    if transfer is None or transfer.phase != "reading":
        raise NotAllowed(f"{name} has no read that could be lost")
    return state.moving(name, transfer._replace(phase="lost"))


def lease_expired(cluster: config.Cluster, state: State, name: str, rules: Rules) -> State:
    """P stops waiting. Only where nobody reads: a reader renews the lease (vllm#41383)."""
    transfer = state.transfer(name)
    held = state.engine(cluster.decode.name).find(name)
    ends = (
        "offered",
        "abandoned",
        "lost",
        *(() if rules.lease_outlives_reader() else ("reading",)),
    )
    if transfer is None or transfer.phase not in ends:
        raise NotAllowed(f"{name} has no lease that could end")
    if transfer.phase == "offered" and held is not None:
        raise NotAllowed(f"{name} waits on D, which renews its lease")
    state = _producer_done(cluster, state, name, rules)
    if transfer.phase in ("lost", "reading"):
        return state
    return state.moving(name, None).ending(cluster.decode.name, name)
