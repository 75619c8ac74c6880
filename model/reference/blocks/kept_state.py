"""States that are cached later than they were computed.

Under sparse retention a state stays in the cache where the prompt sent again would resume. The next
part of a session moves that point. Where the session still holds the state there, it is cached when
the step that computes the part has no further full block to cache.

Source: `MambaManager._cache_partial_tail_block` of vLLM V1.
"""

from kvproof.model import config
from kvproof.model.reference.blocks import groups, pool
from kvproof.model.reference.blocks.kv_event_queue import reporting_stored
from kvproof.model.reference.rules import Rules
from kvproof.model.state import NULL, Engine, Request


def cached_after_all(
    cfg: config.Engine, engine: Engine, request: Request, index: int, full: int, rules: Rules
) -> Engine:
    """The engine where a group has cached the state after `full` blocks of a request, all of which
    were looked at before, if it is worth caching now."""
    group, position = cfg.groups[index], full - 1
    if not group.aligned or cfg.retention is None or cfg.partial_block_hits or position < 0:
        return engine
    block = request.tables[index][position]
    held = block != NULL and engine.blocks[block].key is None
    if not held or not groups.worth_caching(cfg, group, position, request, rules):
        return engine
    ahead = cfg.hash_lookahead_tokens
    key = (index, rules.hashed_prefix(request.tokens, full * group.block_size, ahead))
    engine = pool.promote(engine, key, block, rules)
    looked_at = range(position, full)
    return reporting_stored(
        engine, index, group.block_size, ahead, request.tokens, looked_at, (position,), rules
    )
