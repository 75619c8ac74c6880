"""A request ends, or its transfer: blocks are freed, or kept for a transfer that reads or writes
them.

A request ends because it has all its tokens, because its user aborts it, or because its load
failed. A transfer ends, for pull and push, when all blocks are copied, or fails; a worker may also
send a stray report.

A load from a store fails in a step whose output reports it. The step and later steps in flight
computed with missing KV. None of their results count for the request: no token, no placeholder, and
no cached block from the first missing block on. By the failure policy the request ends, or it
continues before that block. The store loses a prefix whose load failed.

Sources: `NixlPullConnectorScheduler.request_finished`, `Scheduler._update_from_kv_xfer_finished`,
`_update_waiting_for_remote_kv` and `_handle_invalid_blocks` of vLLM V1; the last knows one cache
group only. Not modelled: loads that fail in part, and loads whose blocks another request also
holds.
"""

from kvproof.model import config, memory
from kvproof.model.arithmetic import counts
from kvproof.model.config.sides import giver, is_reverse, reverse_of, taker
from kvproof.model.environment import disturbances, pulls, stores
from kvproof.model.errors import NotAllowed
from kvproof.model.events import TransferDone
from kvproof.model.phases import Phase, before
from kvproof.model.reference import in_flight
from kvproof.model.reference.blocks import allocation, pool
from kvproof.model.reference.transfers.loads import declined, offered_lists
from kvproof.model.state import (
    ABORTED,
    FAILED,
    LOADED,
    LOADING,
    SENDING,
    VOID,
    Engine,
    Request,
    State,
    Transfer,
)


def finish(
    cfg: config.EngineConfig, state: State, request: Request, *, keeps: bool = False
) -> State:
    """A request has all its tokens. P keeps its blocks for D; D keeps them for the next turn if
    `keeps` is set."""
    engine = state.engine(cfg.name)
    if cfg.has_connector:
        needed = in_flight.settled(engine, request)
        if request.route == "to_decode":
            needed = int(counts.needed_from_load(needed, request.submitted_prompt_tokens))
        elif keeps:
            needed = min(needed, _tokens_to_offer(engine, request))
        engine, request = allocation.release_skipped(cfg, engine, request, computed=needed)
    state = state.ending(cfg.name, request.id)
    engine = in_flight.invalidated(engine, request.id, VOID)
    if request.route == "to_decode" or keeps:
        engine = engine.with_request(request._replace(status=SENDING, drafts=0, states=()))
        engine = stop_running(engine, request.id)
        tokens = _tokens_to_offer(engine, request)
        lists = offered_lists(cfg, request._replace(computed=tokens))
        name = request.id
        if request.route != "to_decode":
            name = reverse_of(name)
        offer = Transfer(name, Phase.OFFERED, tokens, lists)
        early = state.transfer(name)
        if early is not None and early.phase != Phase.AWAITED:  # D registered first
            offer = early._replace(tokens=tokens, remote=lists)
        return state.with_engine(engine).with_transfer(name, offer)
    engine = in_flight.give_back(cfg, engine, request).without(request.id)
    return state.with_engine(engine)


def _tokens_to_offer(engine: Engine, request: Request) -> int:
    """The number of tokens of a finished request whose KV is offered."""
    settled = in_flight.settled(engine, request)
    return int(counts.tokens_offered(request.computed, settled, len(request.tokens)))


def leave(
    cluster: config.Cluster, cfg: config.EngineConfig, state: State, request: Request
) -> State:
    """A request ends early: its user aborts it, or its load failed. While a load still writes to
    its blocks, it keeps them."""
    engine = state.engine(cfg.name)
    if cfg.has_connector and request.status != LOADING:
        settled = in_flight.settled(engine, request)
        engine, request = allocation.release_skipped(cfg, engine, request, computed=settled)
    engine = in_flight.invalidated(engine, request.id, VOID)
    state = state.ending(cfg.name, request.id)
    if keeps_its_blocks(request):
        engine = stop_running(engine, request.id)
        return state.with_engine(engine.with_request(request._replace(status=ABORTED)))
    engine = in_flight.give_back(cfg, engine, request).without(request.id)
    state = state.with_engine(engine)
    return declined(cluster, state, request.id) if cfg == cluster.decode else state


def keeps_its_blocks(request: Request) -> bool:
    """Whether a request that ends early keeps its blocks until its load has ended: yes where a load
    still writes to them (vllm#32255)."""
    return request.status == LOADING


def stop_running(engine: Engine, name: str) -> Engine:
    """Remove a request from the running queue: no later step computes its tokens."""
    return engine._replace(running=tuple(r for r in engine.running if r != name))


def producer_done(cluster: config.Cluster, state: State, name: str) -> State:
    """Free the sender's blocks of a transfer, which it no longer needs."""
    source, sent = giver(cluster, name)
    engine = state.engine(source.name)
    request = engine.find(sent)
    if request is None or request.status != SENDING:
        return state
    engine = in_flight.give_back(source, engine, request).without(sent)
    return state.with_engine(engine)


def transfer_done(cluster: config.Cluster, state: State, name: str) -> State:
    """All blocks are read or written; the sender may free its blocks. An aborted request of the
    receiver frees its blocks now."""
    transfer = state.transfer(name)
    if transfer is None or transfer.phase not in before(TransferDone):
        raise NotAllowed(f"{name} has no transfer that could end")
    if not transfer.remote:
        raise NotAllowed(f"{name} is not finished on P, so P cannot be notified")
    if transfer.phase != Phase.RELEASING:
        p, (d, taken) = giver(cluster, name).engine, taker(cluster, name)
        sink = memory.copy(p, d, state.engine(p.name), state.engine(d.name), transfer.pairs)
        request = sink.find(taken)
        if request is not None and request.status == ABORTED:
            sink = without_aborted(sink, request)
        elif request is not None:
            sink = sink.with_request(request._replace(status=LOADED))
        state = state.with_engine(sink)
    state = _ended(state, transfer)
    return producer_done(cluster, state, name)


def without_aborted(engine: Engine, request: Request) -> Engine:
    """The engine after the load of an aborted request has ended: the request frees its blocks."""
    return pool.release_all(engine, request).without(request.id)


def _ended(state: State, transfer: Transfer) -> State:
    """The state without a transfer. The record of a reverse transfer stays, because P requests it
    only once."""
    left = pulls.turn_over(transfer) if is_reverse(transfer.request) else None
    return state.with_transfer(transfer.request, left)


def load_failed(cluster: config.Cluster, state: State, name: str) -> State:
    """The receiver knows that its load failed: it frees the blocks, or fills them by computing."""
    sink, taken = taker(cluster, name)
    engine = state.engine(sink.name)
    request = engine.find(taken)
    if request is None:
        return state
    if request.status == ABORTED or cluster.load_failure == "fail":
        return leave(cluster, sink, state, request._replace(status=FAILED))
    return state.with_engine(engine.with_request(restarted(request)))


def restarted(request: Request) -> Request:
    """A request whose load failed and that will compute its prompt itself: the next step starts at
    the first token."""
    return request._replace(status=FAILED, computed=0)


def stray_report(state: State, engine_name: str, name: str) -> State:
    """Process a stray report, which changes nothing."""
    engine = state.engine(engine_name)
    if not disturbances.reported_before(state, engine, name):
        raise NotAllowed(f"no transfer of {name} on {engine_name} was reported before")
    return state


def taken_back(cluster: config.Cluster, state: State, name: str, failed: str) -> State:
    """The state without the results that were computed after the load of this request."""
    cfg, engine = cluster.engine(name), state.engine(name)
    if failed not in stores.failing(cluster, state, engine):
        raise NotAllowed(f"{failed} has no load on {name} that could fail")
    request = engine.request(failed)
    engine = _without_share(stores.spoiled(cfg, engine, request), failed)
    engine, request = uncache_missing(cluster, engine, request, stores.missing(cfg, request))
    # Its drafter has proposed tokens meanwhile; the next step verifies them.
    proposed = cfg.drafts if request.computed >= len(request.tokens) else 0
    request = request._replace(drafts=proposed)
    request = request._replace(computed=request.hit, external=0)
    engine = void_steps(engine.with_request(request), failed)
    return state.with_engine(engine)._replace(failures=state.failures + 1)


def _without_share(engine: Engine, name: str) -> Engine:
    """The engine without the output of its oldest step for a request."""
    if engine.step is not None:
        return engine._replace(step=tuple(s for s in engine.step if s[0] != name))
    oldest, *rest = engine.steps
    return engine._replace(steps=(tuple(f for f in oldest if f.request != name), *rest))


def end_failed(cluster: config.Cluster, state: State, name: str, failed: str) -> State:
    """End the request if the policy is `fail`, after the outputs of the other requests have been
    processed."""
    if cluster.load_failure != "fail":
        return state
    cfg = cluster.engine(name)
    return leave(cluster, cfg, state, state.engine(name).request(failed))


def uncache_missing(
    _cluster: config.Cluster, engine: Engine, request: Request, missing: tuple[int, ...]
) -> tuple[Engine, Request]:
    """Remove the cache entries of the `missing` blocks, which a store could not fill. They are the
    last blocks of the request's table."""
    for block in missing:
        engine = pool.unregister(engine, block)
    filled = len(request.tables[0]) - len(missing)
    return engine, request._replace(num_cached_blocks=(min(request.num_cached_blocks[0], filled),))


def void_steps(engine: Engine, name: str) -> Engine:
    """Discard the outputs of the later steps in flight of a request whose load failed, and remove
    its placeholders (vllm#45138)."""
    return in_flight.invalidated(engine, name, VOID)
