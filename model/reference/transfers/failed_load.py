"""A load from a store has failed, and the output of the step reports it.

The step and later steps in flight computed with missing KV. None of their results count for the
request: no token, no placeholder, and no cached block from the first missing block on. By the
failure policy the request ends, or it continues before that block. The store loses a prefix whose
load failed.

Source: `Scheduler._handle_invalid_blocks` of vLLM V1, which knows one cache group only. Not
modelled: loads that fail in part, and loads whose blocks another request also holds.
"""

from collections.abc import Iterator

from kvproof.model import config, memory
from kvproof.model.errors import NotAllowed
from kvproof.model.reference.blocks import pool
from kvproof.model.reference.features import in_flight, store
from kvproof.model.reference.transfers.request_ends import leave
from kvproof.model.state import COUNTS, VOID, Engine, Request, State


def _shares(engine: Engine) -> dict[str, int]:
    """The number of tokens in flight of each request in the oldest step."""
    if engine.step is not None:
        return dict(engine.step)
    oldest = engine.steps[0] if engine.steps else ()
    return {
        share.request: sum(f.tokens for f in engine.flights(share.request) if f.fate == COUNTS)
        for share in oldest
        if share.fate == COUNTS
    }


def missing(cfg: config.Engine, request: Request) -> tuple[int, ...]:
    """The blocks of a request from the first block of its load on."""
    return request.tables[0][request.hit // cfg.groups[0].block_size :]


def possible(cluster: config.Cluster, state: State, engine: Engine) -> Iterator[str]:
    """The requests with a load in the oldest step in flight that may fail."""
    cfg = cluster.engine(engine.name)
    if not cfg.store or state.failures >= cluster.failures:
        return
    for name, tokens in _shares(engine).items():
        request = engine.request(name)
        loads = request.external and request.computed - tokens == request.hit + request.external
        if loads and not _held_by_others(cfg, engine, request):
            yield name


def _held_by_others(cfg: config.Engine, engine: Engine, request: Request) -> bool:
    blocks = set(missing(cfg, request))
    others = (r for r in engine.requests if r.id != request.id)
    return any(blocks & set(table) for r in others for table in r.tables)


def spoiled(cfg: config.Engine, engine: Engine, request: Request) -> Engine:
    """The engine and its store without the KV of a request after its local hit."""
    engine = memory.wiped(engine, missing(cfg, request))
    return store.losing(engine, request.tokens[: request.hit + cfg.groups[0].block_size])


def taken_back(cluster: config.Cluster, state: State, name: str, failed: str) -> State:
    """The state without the results that were computed after the load of this request."""
    cfg, engine = cluster.engine(name), state.engine(name)
    if failed not in possible(cluster, state, engine):
        raise NotAllowed(f"{failed} has no load on {name} that could fail")
    request = engine.request(failed)
    engine = _without_share(spoiled(cfg, engine, request), failed)
    engine, request = uncache_missing(cluster, engine, request, missing(cfg, request))
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
    """End the request if the policy is `fail`, after the outputs of other requests were
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
