"""The NIXL pull connector, seen from both schedulers and from the worker that pairs block lists.

Sources: `NixlPullConnectorScheduler` (`get_num_new_matched_tokens`, `update_state_after_alloc`,
`request_finished`), `NixlBaseConnectorScheduler` (`_truncate_request_for_prefill`,
`get_exchange_clipped_blocks`) and the worker's `_apply_prefix_caching`.
"""

from kvproof.model import config, memory
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Admit
from kvproof.model.reference.blocks import coordinator
from kvproof.model.reference.features import follow_up_turns, in_flight, store
from kvproof.model.reference.rules import Rules
from kvproof.model.reference.transfers import transfer_actions
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

OPEN = ("offered", "awaited")
"""Phases of a hand-over in which D has not begun with it."""


def kinds(cfg: config.Engine) -> tuple[str, ...]:
    """The kinds of the cache groups."""
    return tuple(g.kind for g in cfg.groups)


def truncated(cfg: config.Engine, request: Request, rules: Rules) -> Request:
    """On P, the request shortened by the tokens D computes itself."""
    if request.route != "to_decode":
        return request
    backoff = rules.backoff_on_prefill(kinds(cfg), request.embeds)
    done = len(request.prompt) < request.submitted_prompt_tokens
    length = rules.prompt_after_truncation(len(request.prompt), backoff, done)
    return request._replace(prompt=request.prompt[:length])


def asked_again(cfg: config.Engine, request: Request, rules: Rules) -> Request:
    """The request after the connector is asked about it; it may have been asked before."""
    return truncated(cfg, request, rules) if request.preemptions else request


def emptied(request: Request) -> Request:
    """The request without blocks and progress."""
    return request._replace(
        tables=(),
        num_cached_blocks=(),
        computed=0,
        hit=0,
        external=0,
        shared_prefix_boundary=0,
        drafts=0,
        states=(),
    )


def loadable(cluster: config.Cluster, state: State, request: Request, rules: Rules) -> int:
    """Tokens that P offers to D for this request, the store to its engine, or D to P for its next
    turn."""
    if cluster.decode.store:
        return store.offered(state.engine(cluster.decode.name).stored, request.tokens)
    if request.route == "to_decode":
        return (
            follow_up_turns.loadable(cluster, state, request, rules)
            if cluster.follow_up_turns
            else 0
        )
    transfer = state.transfer(request.id)
    if request.route != "from_prefill" or transfer is None or transfer.phase not in OPEN:
        return 0
    known = rules.prompt_tokens_known(len(request.prompt), request.embeds)
    backoff = rules.backoff_on_decode(kinds(cluster.decode))
    return int(rules.tokens_loaded_by_decode(known, backoff))


def check_external(
    cluster: config.Cluster,
    state: State,
    engine: Engine,
    request: Request,
    choice: Admit,
    rules: Rules,
) -> None:
    """All that is offered beyond the local hit is loaded."""
    offered = loadable(cluster, state, request, rules)
    rest = max(offered - choice.local_hit, 0)
    if choice.external == rest:
        return
    cfg = cluster.engine(engine.name)
    full = coordinator.longest_full(cfg, engine, request.tokens, rules)
    beside_hit = offered if cfg.store else rules.offered_beside_hit(offered, full)
    if choice.external == max(beside_hit - choice.local_hit, 0):
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
    shared = cfg.prefix_caching and rules.connector_brings_states(cfg)
    if together < offered and shared:
        # At least one token is left to the connector: the states come with it.
        full = coordinator.longest_full(cfg, engine, request.tokens, rules)
        offered = rules.offered_beside_hit(offered, full)
        alone = coordinator.each_alone(cfg, engine, request.tokens, rules)
        local = rules.hit_before_load(together, full, alone)
        hit = max(together, min(local, rules.longest_hit_tokens(offered, cfg.hit_unit)))
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


def fresh_lists(cfg: config.Engine, engine: Engine, request: Request, rules: Rules) -> Lists:
    """The blocks that a load is to fill. A request that loads nothing has none."""
    lists: list[tuple[int, ...]] = []
    for index, group in enumerate(cfg.groups):
        table = request.tables[index] if request.external else ()
        fresh = tuple(b for b in table if b != NULL and engine.blocks[b].key is None)
        if group.kind == "mamba":
            fresh = _state_slots(_without_scratch(cfg, fresh), rules)
        if group.kind == "window":
            fresh = fresh[-int(rules.window_blocks_offered(group.window, group.block_size)) :]
        lists.append(fresh)
    return tuple(lists)


def paired(cluster: config.Cluster, request: Request, transfer: Transfer, rules: Rules) -> Transfer:
    """The transfer with D's fresh blocks (`local`) paired with P's, kernel block by kernel block.
    Where D has none to fill, nothing is paired with nothing. Of a hand-back the parts are
    exchanged: P is `d` here and D is `p`."""
    p, _, d, _ = follow_up_turns.parties(cluster, transfer.request)
    pairs: list[Pair] = []
    for index, group in enumerate(d.groups):
        table, fresh = request.tables[index], transfer.local[index]
        remote = transfer.remote[index]
        if group.kind == "mamba":
            pairs.append((fresh, _state_slots(remote, rules) if fresh else ()))
            continue
        ours = _kernel(fresh, d.physical_per_logical)
        theirs = _kernel(remote, p.physical_per_logical)
        block_size = p.groups[index].block_size
        remote_blocks = int(rules.attention_blocks_offered(transfer.tokens, block_size))
        first = (remote_blocks - len(remote)) * p.physical_per_logical
        if follow_up_turns.is_back(transfer.request):
            end = len(table) * d.physical_per_logical
            first, theirs = rules.cut_held_list(first, theirs, end)
        a, b, c, e = rules.trim(
            (len(table) - len(fresh)) * d.physical_per_logical,
            len(ours),
            first,
            len(theirs),
            d.physical_per_logical == p.physical_per_logical,
        )
        pairs.append((ours[a:b], theirs[c:e]))
    return transfer._replace(pairs=tuple(pairs))


def start_load(cluster: config.Cluster, state: State, name: str, rules: Rules) -> State:
    """The blocks for the external tokens of a transfer are allocated: they are filled now, unless P
    has yet to finish."""
    source, _, sink, taken = follow_up_turns.parties(cluster, name)
    engine = state.engine(sink.name)
    request = engine.request(taken)._replace(status=LOADING)
    transfer = state.transfer(name)
    if transfer is None:
        raise NotAllowed(f"{taken} loads and nothing is offered")
    if follow_up_turns.is_back(name) and transfer.phase != "offered":
        return state.with_engine(engine.with_request(request)).with_transfer(
            name, follow_up_turns.requested(transfer)
        )
    transfer = transfer._replace(local=fresh_lists(sink, engine, request, rules))
    if transfer.phase == "awaited":
        return state.with_engine(engine.with_request(request)).with_transfer(
            name, transfer._replace(phase="registered")
        )
    transfer = paired(cluster, request, transfer._replace(phase="reading"), rules)
    for index, group in enumerate(sink.groups):
        ratios = (sink.physical_per_logical, source.physical_per_logical)
        slots = (len(transfer.local[index]) * ratios[0], len(transfer.remote[index]) * ratios[1])
        if group.attention and slots[0] > rules.longest_local_list(*slots, *ratios):
            engine = engine._replace(dead=f"lists of {slots[0]} and {slots[1]} blocks do not pair")
    return state.with_engine(engine.with_request(request)).with_transfer(name, transfer)


def declined(cluster: config.Cluster, state: State, name: str, rules: Rules) -> State:
    """Whoever may load by a transfer was admitted without a load, or left before it: the other side
    is only told so."""
    transfer = state.transfer(name)
    if transfer is not None and transfer.phase == "expired":
        return state.with_transfer(name, follow_up_turns.over(transfer))
    if transfer is None or transfer.phase not in OPEN:
        return state
    if cluster.pushes:
        return state.with_transfer(name, rules.decline_push(transfer))
    _, _, sink, taken = follow_up_turns.parties(cluster, name)
    engine = state.engine(sink.name)
    request = engine.find(taken)
    if request is not None and request.tables:
        local = fresh_lists(sink, engine, request, rules)
        transfer = paired(cluster, request, transfer._replace(local=local), rules)
    return state.with_transfer(name, transfer._replace(phase="telling"))


def finish(
    cfg: config.Engine, state: State, request: Request, rules: Rules, keeps: bool = False
) -> State:
    """A request has all its tokens. On P its blocks stay for D to read; on D they stay for the next
    turn, where it `keeps` them."""
    engine = state.engine(cfg.name)
    if cfg.has_connector:
        needed = in_flight.settled(engine, request, rules)
        if request.route == "to_decode":
            needed = int(rules.needed_from_load(needed, request.submitted_prompt_tokens))
        elif keeps:
            needed = min(needed, _handed_over(engine, request, rules))
        engine, request = coordinator.release_skipped(cfg, engine, request, rules, needed)
    state = state.ending(cfg.name, request.id)
    engine = in_flight.invalidated(engine, request.id, VOID)
    if request.route == "to_decode" or keeps:
        engine = engine.with_request(request._replace(status=SENDING, drafts=0, states=()))
        engine = rules.stop_running(engine, request.id)
        tokens = _handed_over(engine, request, rules)
        lists = offered_lists(cfg, request._replace(computed=tokens), rules)
        name = request.id if request.route == "to_decode" else follow_up_turns.back(request.id)
        offer = Transfer(name, "offered", tokens, lists)
        early = state.transfer(name)
        if early is not None and early.phase != "awaited":  # D was first, and knows what it needs
            offer = early._replace(tokens=tokens, remote=lists)
        return state.with_engine(engine).with_transfer(name, offer)
    engine = in_flight.give_back(cfg, engine, request, rules).without(request.id)
    return state.with_engine(engine)


def _handed_over(engine: Engine, request: Request, rules: Rules) -> int:
    """Tokens of a finished request that are handed over."""
    settled = in_flight.settled(engine, request, rules)
    return int(rules.tokens_handed_over(request.computed, settled, len(request.tokens)))


def leave(
    cluster: config.Cluster, cfg: config.Engine, state: State, request: Request, rules: Rules
) -> State:
    """A request ends before its time: by its user, or because its load failed. Into what it holds
    a load still writes."""
    engine = state.engine(cfg.name)
    if cfg.has_connector and request.status != LOADING:
        settled = in_flight.settled(engine, request, rules)
        engine, request = coordinator.release_skipped(cfg, engine, request, rules, settled)
    engine = in_flight.invalidated(engine, request.id, VOID)
    state = state.ending(cfg.name, request.id)
    if rules.keeps_until_loaded(request.status == LOADING):
        engine = transfer_actions.stop_running(engine, request.id)
        return state.with_engine(engine.with_request(request._replace(status=ABORTED)))
    engine = in_flight.give_back(cfg, engine, request, rules).without(request.id)
    state = state.with_engine(engine)
    return declined(cluster, state, request.id, rules) if cfg == cluster.decode else state


def producer_done(cluster: config.Cluster, state: State, name: str, rules: Rules) -> State:
    source, sent, _, _ = follow_up_turns.parties(cluster, name)
    engine = state.engine(source.name)
    request = engine.find(sent)
    if request is None or request.status != SENDING:
        return state
    engine = in_flight.give_back(source, engine, request, rules).without(sent)
    return state.with_engine(engine)


def _ended(state: State, transfer: Transfer) -> State:
    """The state without a transfer. What D handed back is remembered: P asks once."""
    left = follow_up_turns.over(transfer) if follow_up_turns.is_back(transfer.request) else None
    return state.with_transfer(transfer.request, left)


def transfer_done(cluster: config.Cluster, state: State, name: str, rules: Rules) -> State:
    """Everything is read, or written; the sender may free. An aborted reader frees now."""
    transfer = state.transfer(name)
    if transfer is None or transfer.phase not in ("reading", "overdue", "telling"):
        raise NotAllowed(f"{name} has no transfer that could end")
    if not transfer.remote:
        raise NotAllowed(f"{name} is not finished on P, which could not be told")
    if transfer.phase != "telling":
        p, _, d, taken = follow_up_turns.parties(cluster, name)
        sink = memory.copy(state.engine(p.name), state.engine(d.name), p, d, transfer.pairs)
        request = sink.find(taken)
        if request is not None and request.status == ABORTED:
            sink = rules.free_aborted(sink, request, rules).without(taken)
        elif request is not None:
            sink = sink.with_request(request._replace(status=LOADED))
        state = state.with_engine(sink)
    state = _ended(state, transfer)
    return producer_done(cluster, state, rules.reported_id(name), rules)


def transfer_failed(cluster: config.Cluster, state: State, name: str, rules: Rules) -> State:
    """The reader could not read. By policy its request fails, or computes the prompt itself."""
    transfer = state.transfer(name)
    if transfer is None or transfer.phase not in ("reading", "refused"):
        raise NotAllowed(f"{name} has no read that could fail")
    if transfer.phase == "refused":
        state = state.with_transfer(name, follow_up_turns.over(transfer))
    else:
        state = state.with_transfer(name, transfer._replace(phase="abandoned", local=(), pairs=()))
        state = state._replace(failures=state.failures + 1)
    return load_failed(cluster, state, name, rules)


def load_failed(cluster: config.Cluster, state: State, name: str, rules: Rules) -> State:
    """The reader knows that nothing fills its blocks: they are let go, or filled by computing."""
    _, _, sink, taken = follow_up_turns.parties(cluster, name)
    engine = state.engine(sink.name)
    request = engine.find(taken)
    if request is None:
        return state
    if request.status == ABORTED or cluster.load_failure == "fail":
        return leave(cluster, sink, state, request._replace(status=FAILED), rules)
    return state.with_engine(engine.with_request(rules.restart_after_failed_load(request, FAILED)))


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
    if not told_before(state, engine, name):
        raise NotAllowed(f"no transfer of {name} on {engine_name} was reported before")
    return state.with_engine(rules.take_repeated_report(engine, name))


def transfer_lost(state: State, name: str) -> State:
    """The end of a read will never be reported."""
    transfer = state.transfer(name)
    if transfer is None or transfer.phase != "reading":
        raise NotAllowed(f"{name} has no read that could be lost")
    return state.with_transfer(name, transfer._replace(phase="lost"))


def renewed(transfer: Transfer, rules: Rules) -> bool:
    """Whether the lease of a transfer is renewed, so that it does not end."""
    return bool(rules.renews_lease(transfer.phase == "reading"))


def lease_expired(cluster: config.Cluster, state: State, name: str, rules: Rules) -> State:
    """The sender stops waiting. Only where nobody reads: a reader renews the lease (vllm#41383), or
    reads only what is left to it for long enough (vllm#47021)."""
    transfer = state.transfer(name)
    leased = ("offered", "abandoned", "lost", "reading")
    if transfer is None or transfer.phase not in leased or renewed(transfer, rules):
        raise NotAllowed(f"{name} has no lease that could end")
    state = producer_done(cluster, state, name, rules)
    if follow_up_turns.is_back(name):
        return (
            state
            if transfer.phase == "reading"
            else state.with_transfer(name, follow_up_turns.expired(transfer))
        )
    held = state.engine(cluster.decode.name).find(name)
    if transfer.phase == "offered" and held is not None:
        raise NotAllowed(f"{name} waits on D, which renews its lease")
    if transfer.phase in ("lost", "reading"):
        return state
    over = transfer.phase == "offered"  # else D could not read, and may compute it all
    state = state.with_transfer(name, None)
    return state.ending(cluster.decode.name, name) if over else state
