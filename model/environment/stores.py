"""An external KV store of one engine: which tokens of a step it keeps, and which prefixes it
offers.

It represents any store-type connector that loads within the step (`get_num_new_matched_tokens`
returns `(n, False)`). Its offers are always correct: it offers a prefix only where it has the KV of
all tokens and, where the engine has a Mamba group, the state at the end. It loses nothing when the
engine evicts or resets its cache; it loses only prefixes whose load failed.
"""

from kvproof.model import config
from kvproof.model.state import SAMPLED, Engine


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
