"""Processing of a step's output, on an engine whose steps overlap (see `in_flight`) and on one
whose steps do not overlap.

Sources: `Scheduler.update_from_output` and `AsyncScheduler._update_request_with_output` of vLLM V1.
"""

from collections.abc import Mapping

from kvproof.model import config, draft_memory, memory
from kvproof.model.environment import acceptance, stores
from kvproof.model.errors import NotAllowed
from kvproof.model.events import NONE_ACCEPTED
from kvproof.model.reference import in_flight
from kvproof.model.reference.blocks import caching
from kvproof.model.reference.scheduling import sessions
from kvproof.model.reference.transfers.request_ends import finish
from kvproof.model.state import COUNTS, LATE, VOID, Engine, Flight, Request, State
from kvproof.model.step import Read


def complete(
    cluster: config.Cluster, state: State, name: str, *, accepted: Mapping[str, int] = NONE_ACCEPTED
) -> State:
    """Process a step's output: each request that has computed all known tokens gets its accepted
    drafts and one sampled token, and may end."""
    cfg = cluster.engine(name)
    engine = state.engine(name)
    if engine.step is None:
        raise NotAllowed(f"engine {name} has no step in flight")
    scheduled = engine.step
    acceptance.check(engine, accepted)
    state = state.with_engine(engine._replace(step=None))
    for request_id, _ in scheduled:
        engine = state.engine(name)
        request = engine.request(request_id)
        doubtful = max(request.computed - len(request.tokens), 0)
        engine = stores.keeping(cfg, engine, request.tokens, request.computed, doubtful)
        state = state.with_engine(engine)
        samples = request.computed >= len(request.tokens)
        drafts = accepted.get(request_id, 0)
        if cfg.drafts:
            engine, request = draft_memory.settled(cfg, engine, request, drafts)
            state = state.with_engine(engine)
        if not samples:
            continue
        request = in_flight.lengthened(request, drafts + 1)._replace(drafts=cfg.drafts)
        engine = engine.with_request(request)
        if cfg.hash_lookahead_tokens:  # the sampled token completes the hash of the block before it
            known = len(request.tokens) - 1
            engine, request = caching.cache(cfg, engine, request, known)
        state = state.with_engine(engine)
        if len(request.output) < request.answer_tokens:
            continue
        if cluster.job(request_id).parts:
            state = sessions.paused(state, request, name)
        else:
            state = finish(cfg, state, request, keeps=cluster.follow_up_turns)
    return state


def complete_overlapping(
    cluster: config.Cluster, state: State, name: str, *, accepted: Mapping[str, int] = NONE_ACCEPTED
) -> State:
    """Process the output of the oldest step in flight. Each sampled token replaces its placeholder;
    full blocks of known tokens are cached; a request may end. The output of an ended request is
    discarded. The tokens of a preempted request are kept; they change neither placeholders nor
    computed tokens, because the preemption has already reset both (vllm#48245)."""
    engine = state.engine(name)
    if not engine.steps:
        raise NotAllowed(f"engine {name} has no step in flight")
    acceptance.check(engine, accepted)
    engine, step = in_flight.arrived(engine)
    state = state.with_engine(engine)
    for flight in step:
        if flight.fate != VOID:
            state = _taken(cluster, state, flight, name, accepted)
    return state


def carried_out(
    cfg: config.EngineConfig, before: Engine, after: Engine
) -> tuple[Engine, tuple[Read, ...]]:
    """The engine after the worker executed the parts of the next step that waited for the arrived
    output. Parts whose output is discarded are not executed: they cache nothing, and later steps
    overwrite what they would write."""
    sampled = {f.request for f in before.steps[0] if f.samples and f.fate == COUNTS}
    batch = [
        (after.request(f.request), f.tokens)
        for f in (after.steps[0] if after.steps else ())
        if f.request in sampled and f.fate == COUNTS
    ]
    return memory.run(cfg, after, batch) if cfg.drafts and batch else (after, ())


def _stepped_back(
    cfg: config.EngineConfig, engine: Engine, request: Request, drafts: int
) -> tuple[Engine, Request]:
    """The request without the rejected drafts of an ended step. The next step in flight starts
    earlier by that number of tokens; the blocks that it uses are known now."""
    behind = in_flight.under_way(engine, request.id)
    ended = request._replace(computed=request.computed - behind)
    engine, ended = draft_memory.settled(cfg, engine, ended, drafts)
    request = request._replace(computed=ended.computed + behind, states=ended.states)
    return in_flight.placed(cfg, engine, request).with_request(request), request


def _taken(
    cluster: config.Cluster, state: State, flight: Flight, name: str, accepted: Mapping[str, int]
) -> State:
    cfg, drafts = cluster.engine(name), accepted.get(flight.request, 0)
    engine = without_placeholder(state.engine(cfg.name), flight)
    request = engine.request(flight.request)
    if not flight.samples:
        return state.with_engine(engine)
    if flight.fate == COUNTS and cfg.drafts:
        engine, request = _stepped_back(cfg, engine, request, drafts)
    request = in_flight.lengthened(request, drafts + 1)
    engine = engine.with_request(request)
    if flight.fate == COUNTS:
        settled = len(request.tokens) - 1
        engine, request = caching.cache(cfg, engine, request, settled)
    state = state.with_engine(engine)
    if len(request.output) < request.answer_tokens:
        return state
    if cluster.job(request.id).parts:
        return sessions.paused(state, request, name)
    return finish(cfg, state, request, keeps=cluster.follow_up_turns)


def without_placeholder(engine: Engine, flight: Flight) -> Engine:
    """The engine without the placeholders that a part of a step has reserved."""
    reserved = int(flight.samples) + flight.ahead
    taken = in_flight.placeholders_due(reserved, flight.fate == LATE)
    left = engine.placeholders(flight.request) - taken
    return in_flight.with_placeholders(engine, flight.request, left)
