"""Processing of a step's output on an engine whose steps do not overlap (see also `overlap`).

Source: `Scheduler.update_from_output` of vLLM V1.
"""

from collections.abc import Mapping

from kvproof.model import config, draft_memory
from kvproof.model.environment import acceptance, stores
from kvproof.model.errors import NotAllowed
from kvproof.model.events import NONE_ACCEPTED
from kvproof.model.reference.blocks import caching
from kvproof.model.reference.features import drafting
from kvproof.model.reference.scheduling import sessions
from kvproof.model.reference.transfers.request_ends import finish
from kvproof.model.state import State


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
        request = drafting.lengthened(request, drafts + 1)._replace(drafts=cfg.drafts)
        engine = engine.with_request(request)
        if cfg.hash_lookahead_tokens:  # the sampled token completes the hash of the block before it
            known = len(request.tokens) - 1
            engine, request = caching.cache(cfg, engine, request, known)
        state = state.with_engine(engine)
        if len(request.output) < request.max_tokens:
            continue
        if cluster.job(request_id).parts:
            state = sessions.paused(state, request, name)
        else:
            state = finish(cfg, state, request, keeps=cluster.follow_up_turns)
    return state
