"""States that are cached after the step that computed them.

Sparse retention keeps the state at which the same prompt would resume. The next part of a session
moves that position. If the session still holds the state at the new position, the step that
computes the part caches it, unless that step has another full block to cache.

Source: `MambaManager._cache_partial_tail_block` of vLLM V1.
"""

from kvproof.model import config
from kvproof.model.reference.blocks import groups, pool
from kvproof.model.reference.blocks.kv_event_queue import reporting_stored
from kvproof.model.state import NULL, Engine, Request


def cached_after_all(
    cfg: config.EngineConfig, engine: Engine, request: Request, index: int, full: int
) -> Engine:
    """The engine after a group cached the state after `full` blocks of a request, if this state is
    worth caching now. An earlier step has processed all these blocks."""
    group, position = cfg.groups[index], full - 1
    if not group.aligned or cfg.retention is None or cfg.partial_block_hits or position < 0:
        return engine
    block = request.tables[index][position]
    held = block != NULL and engine.blocks[block].key is None
    if not held or not groups.worth_caching(cfg, request, group, position):
        return engine
    ahead = cfg.hash_lookahead_tokens
    key = (index, groups.hashed_prefix(request.tokens, full * group.block_size, ahead))
    engine = pool.promote(engine, key, block)
    looked_at = range(position, full)
    return reporting_stored(
        engine, index, group.block_size, ahead, request.tokens, looked_at, (position,)
    )
