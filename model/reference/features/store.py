"""An external store of KV beside one engine: what it keeps of a step, and what it offers.

It stands for any store-type connector that loads within the step (`get_num_new_matched_tokens`
answers `(n, False)`). It is the environment, so it is never wrong: it offers a prefix only where it
has the KV of all its tokens and, where the engine keeps a Mamba state, the state at its end. It
loses nothing when the engine evicts or resets its cache, but what it once could not bring.
"""

from kvproof.model import config
from kvproof.model.arithmetic import counts
from kvproof.model.state import SAMPLED, Engine


def kept(cfg: config.Engine, tokens: str) -> tuple[str, ...]:
    """The prefixes that can be offered after a step has computed the last of these tokens: whole
    blocks. A state can be kept only where the step ends."""
    unit = cfg.hit_unit
    if cfg.has_state:
        return (tokens,) if len(tokens) % unit == 0 else ()
    return tuple(tokens[:end] for end in range(unit, len(tokens) + 1, unit))


def keeping(
    cfg: config.Engine, engine: Engine, tokens: str, computed: int, doubtful: int
) -> Engine:
    """The engine after its store has kept what a step computed of a request. Of the computed tokens
    those behind the known ones are sampled, and so many of the last are `doubtful`: drafts, which
    are not kept, nor is then a state."""
    if not cfg.store or (doubtful and cfg.has_state):
        return engine
    tokens = tokens.ljust(computed, SAMPLED)[: computed - doubtful]
    return engine._replace(stored=tuple(sorted({*engine.stored, *kept(cfg, tokens)})))


def losing(engine: Engine, prefix: str) -> Engine:
    """The engine after its store has lost the last block of a prefix, and all that goes on."""
    return engine._replace(stored=tuple(p for p in engine.stored if not p.startswith(prefix)))


def offered(stored: tuple[str, ...], tokens: str) -> int:
    """The longest stored prefix, in tokens, that leaves one to compute."""
    most = int(counts.longest_hit_tokens(len(tokens), 1))
    return max((len(p) for p in stored if len(p) <= most and tokens.startswith(p)), default=0)
