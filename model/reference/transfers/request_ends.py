"""A request ends on an engine: its blocks are freed, or kept for a transfer that reads or writes
them.

Source: `NixlPullConnectorScheduler.request_finished`.
"""

from kvproof.model import config
from kvproof.model.arithmetic import counts
from kvproof.model.config.sides import reverse_of, sides
from kvproof.model.phases import Phase
from kvproof.model.reference.blocks import allocation
from kvproof.model.reference.features import in_flight
from kvproof.model.reference.transfers.block_pairs import offered_lists
from kvproof.model.reference.transfers.loads import declined
from kvproof.model.state import ABORTED, LOADING, SENDING, VOID, Engine, Request, State, Transfer


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
    source, sent, _, _ = sides(cluster, name)
    engine = state.engine(source.name)
    request = engine.find(sent)
    if request is None or request.status != SENDING:
        return state
    engine = in_flight.give_back(source, engine, request).without(sent)
    return state.with_engine(engine)
