"""Loads from a store that may fail, and what the blocks and the store then have.

A load fails whole: of its first block on, all are missing, and the store loses the prefix. Not
modelled: loads that fail in part, loads whose blocks another request also holds, and loads from a
store of P or D, where transfers fail instead.
"""

from collections.abc import Iterator

from kvproof.model import config, memory
from kvproof.model.environment import stores
from kvproof.model.state import COUNTS, Engine, Request, State


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


def missing(cfg: config.EngineConfig, request: Request) -> tuple[int, ...]:
    """The blocks of a request from the first block of its load on."""
    return request.tables[0][request.hit // cfg.groups[0].block_size :]


def possible(cluster: config.Cluster, state: State, engine: Engine) -> Iterator[str]:
    """The requests with a load in the oldest step in flight that may fail."""
    cfg = cluster.engine(engine.name)
    if not cfg.store or cfg.connected or state.failures >= cluster.failures:
        return
    for name, tokens in _shares(engine).items():
        request = engine.request(name)
        loads = request.external and request.computed - tokens == request.hit + request.external
        if loads and not _held_by_others(cfg, engine, request):
            yield name


def _held_by_others(cfg: config.EngineConfig, engine: Engine, request: Request) -> bool:
    blocks = set(missing(cfg, request))
    others = (r for r in engine.requests if r.id != request.id)
    return any(blocks & set(table) for r in others for table in r.tables)


def spoiled(cfg: config.EngineConfig, engine: Engine, request: Request) -> Engine:
    """The engine and its store without the KV of a request after its local hit."""
    engine = memory.wiped(engine, missing(cfg, request))
    return stores.losing(engine, request.tokens[: request.hit + cfg.groups[0].block_size])
