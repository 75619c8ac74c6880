"""A load from a store has failed, and the output of the step reports it.

The step and later steps in flight computed with missing KV. None of their results count for the
request: no token, no placeholder, and no cached block from the first missing block on. By the
failure policy the request ends, or it continues before that block. The store loses a prefix whose
load failed.

Source: `Scheduler._handle_invalid_blocks` of vLLM V1, which knows one cache group only. Not
modelled: loads that fail in part, and loads whose blocks another request also holds.
"""

from kvproof.model import config
from kvproof.model.environment import failing_loads
from kvproof.model.errors import NotAllowed
from kvproof.model.reference.blocks import pool
from kvproof.model.reference.features import in_flight
from kvproof.model.reference.transfers.request_ends import leave
from kvproof.model.state import VOID, Engine, Request, State


def taken_back(cluster: config.Cluster, state: State, name: str, failed: str) -> State:
    """The state without the results that were computed after the load of this request."""
    cfg, engine = cluster.engine(name), state.engine(name)
    if failed not in failing_loads.possible(cluster, state, engine):
        raise NotAllowed(f"{failed} has no load on {name} that could fail")
    request = engine.request(failed)
    engine = _without_share(failing_loads.spoiled(cfg, engine, request), failed)
    engine, request = uncache_missing(cluster, engine, request, failing_loads.missing(cfg, request))
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


def ended(cluster: config.Cluster, state: State, name: str, failed: str) -> State:
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
