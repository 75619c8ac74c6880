"""What an engine has served: the only memory of the past that invariants need.

An entry says that a prompt's prefill completed here and that nothing was evicted since. The record
is cleared whenever a cache entry is lost, and leaves out a prompt that lost one while it was still
computed, so it never promises too much.
"""

from kvproof.model import config, coordinator, counts
from kvproof.model.state import NOT_WHOLE, SAMPLED, Cached, Engine, Key, Request, Served


def common_prefix(a: str, b: str) -> int:
    """Tokens two prompts share from the start."""
    length = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        length += 1
    return length


def lost(before: Cached, after: Cached) -> tuple[tuple[Key, int], ...]:
    """What is cached no more: keys, each with a block that was cached under it."""
    if before is after:
        return ()
    kept = {(key, block) for key, blocks in after for block in blocks}
    return tuple((k, b) for k, blocks in before for b in blocks if (k, b) not in kept)


def forgetting(before: Engine, after: Engine) -> Engine:
    """The engine after an event, with the record cleared if a cache entry was lost."""
    gone = lost(before.cached, after.cached)
    if not gone:
        return after
    evicted = [key[1] for key, block in gone if not _still_there(after, key, block)]
    requests = tuple(r._replace(shared=_after_loss(r, evicted)) for r in after.requests)
    return after._replace(served=(), requests=requests)


def _still_there(engine: Engine, key: Key, block: int) -> bool:
    """Whether another block is cached under the key, or this one under a longer prefix now."""
    index, tokens = key
    longer = any(k[0] == index and k[1].startswith(tokens) for k in engine.blocks[block].keys)
    return longer or bool(engine.blocks_for(key))


def _after_loss(request: Request, evicted: list[str]) -> int:
    """Nothing that was served is left to share. What is computed of the prompt may be gone too."""
    computing = bool(request.tables) and not request.output
    own = any(map(request.prompt.startswith, evicted))
    return NOT_WHOLE if computing and (own or request.shared == NOT_WHOLE) else 0


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
    """The engine with a prompt noted as served, once per prompt and sharing, where it is whole."""
    if request.output or request.shared == NOT_WHOLE:
        return engine
    served = tuple(sorted({*engine.served, Served(request.prompt, request.shared)}))
    return engine._replace(served=served)


def sampled(request: Request, tokens: int = 1) -> Request:
    """The request with more tokens, as many as it asked for at most."""
    tokens = min(tokens, request.max_tokens - len(request.output))
    return request._replace(output=request.output + SAMPLED * tokens)
