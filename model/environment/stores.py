"""An external KV store of one engine: which tokens of a step it keeps, which prefixes it offers,
and which of its loads may fail.

It represents any store-type connector that loads within the step (`get_num_new_matched_tokens`
returns `(n, False)`). Its offers are always correct: it offers a prefix only where it has the KV of
all tokens and, where the engine has a Mamba group, the state at the end. It loses nothing when the
engine evicts or resets its cache; it loses only prefixes whose load failed.

A load fails whole: of its first block on, all are missing, and the store loses the prefix. Not
modelled: loads that fail in part, loads whose blocks another request also holds, and loads from a
store of P or D, where transfers fail instead.
"""

from collections.abc import Iterator

from kvproof.model import config, memory
from kvproof.model.state import COUNTS, SAMPLED, Engine, Request, State


def kept(cfg: config.EngineConfig, tokens: str) -> tuple[str, ...]:
    """The prefixes, in whole blocks, that the store can offer after a step that ends at the last of
    these tokens. It can keep a state only where a step ends."""
    unit = cfg.hit_unit
    if cfg.has_state:
        return (tokens,) if len(tokens) % unit == 0 else ()
    return tuple(tokens[:end] for end in range(unit, len(tokens) + 1, unit))


def keeping(
    cfg: config.EngineConfig, engine: Engine, tokens: str, computed: int, doubtful: int
) -> Engine:
    """The engine after its store kept the tokens that a step computed for a request. The last
    `doubtful` computed tokens are drafts: the store does not keep them, and then it keeps no state
    either. Other computed tokens after the known tokens are sampled tokens."""
    if not cfg.store or (doubtful and cfg.has_state):
        return engine
    tokens = tokens.ljust(computed, SAMPLED)[: computed - doubtful]
    return engine._replace(stored=tuple(sorted({*engine.stored, *kept(cfg, tokens)})))


def losing(engine: Engine, prefix: str) -> Engine:
    """The engine after its store lost a prefix and all prefixes that extend it."""
    return engine._replace(stored=tuple(p for p in engine.stored if not p.startswith(prefix)))


def offered(stored: tuple[str, ...], tokens: str) -> int:
    """The length in tokens of the longest stored prefix that leaves one token to compute."""
    shorter = (len(p) for p in stored if len(p) < len(tokens) and tokens.startswith(p))
    return max(shorter, default=0)


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


def failing(cluster: config.Cluster, state: State, engine: Engine) -> Iterator[str]:
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
    return losing(engine, request.tokens[: request.hit + cfg.groups[0].block_size])
