"""What an engine has served: the only memory of the past that invariants need.

An entry says that a prompt's prefill completed here and that nothing was evicted since. The record
is cleared whenever a cache entry is lost, so it never promises too much.

The state that a hit inside a block ends at is copied, and nobody holds the copy. Where steps
overlap it may be lost before the output of its prompt arrives, which is then not noted as served.
"""

from kvproof.model import config, coordinator, counts
from kvproof.model.state import SAMPLED, Cached, Engine, Flight, Request, Served

Steps = tuple[tuple[Flight, ...], ...]
"""Steps in flight, oldest first."""


def common_prefix(a: str, b: str) -> int:
    """Tokens two prompts share from the start."""
    length = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        length += 1
    return length


def lost(before: Cached, after: Cached) -> bool:
    """Whether some block has lost its cache entry."""
    if before is after:
        return False
    kept = {(key, block) for key, blocks in after for block in blocks}
    return any((key, block) not in kept for key, blocks in before for block in blocks)


def forgotten(cfg: config.Engine, steps: Steps) -> Steps:
    """Steps in flight while a cache entry is lost."""
    if not cfg.partial:
        return steps
    return tuple(tuple(f._replace(forgotten=True) for f in step) for step in steps)


def forgetting(cfg: config.Engine, before: Engine, after: Engine) -> Engine:
    """The engine after an event, with the record cleared if a cache entry was lost."""
    if not lost(before.cached, after.cached):
        return after
    requests = tuple(r._replace(shared=0) for r in after.requests)
    count = len(before.steps)
    steps = (*forgotten(cfg, after.steps[:count]), *after.steps[count:])
    return after._replace(served=(), requests=requests, steps=steps)


def shared_with_served(cfg: config.Engine, engine: Engine, tokens: str, external: int = 0) -> int:
    """The longest prefix, in whole blocks, that a served prompt has in common with `tokens`; 0
    where full attention has cached more, or less, than that: then they part elsewhere. 0 also where
    a store has brought `external` tokens, for it may have carried the request past that point."""
    if external and cfg.store:
        return 0
    longest = max((common_prefix(s.prompt, tokens) for s in engine.served), default=0)
    # The last token is computed, and with a drafter of the EAGLE kind the block after a hit too.
    matched = longest if cfg.proof else min(longest + 1, len(tokens))
    shared = counts.longest_hit_tokens(matched, cfg.hit_unit, cfg.proof)
    if shared != coordinator.longest_full(cfg, engine, tokens):
        return 0
    if cfg.partial and cfg.aligned_group is not None:
        return int(counts.round_down(shared, cfg.aligned_group.block_size))
    return int(shared)


def record_served(engine: Engine, request: Request) -> Engine:
    """The engine with a prompt noted as served, once per prompt and sharing."""
    if request.output:
        return engine
    served = tuple(sorted({*engine.served, Served(request.prompt, request.shared)}))
    return engine._replace(served=served)


def sampled(request: Request, tokens: int = 1) -> Request:
    """The request with more tokens, as many as it asked for at most."""
    tokens = min(tokens, request.max_tokens - len(request.output))
    return request._replace(output=request.output + SAMPLED * tokens)
