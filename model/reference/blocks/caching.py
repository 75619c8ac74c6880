"""Caching: which blocks of a request are cached when their tokens are computed, and which states
are cached after the step that computed them.

Sparse retention keeps the state at which the same prompt would resume. The next part of a session
moves that position. If the session still holds the state at the new position, the step that
computes the part caches it, unless that step has another full block to cache.

Sources: `KVCacheManager.cache_blocks`, `BlockPool.cache_full_blocks` and
`MambaManager._cache_partial_tail_block` of vLLM V1.
"""

from kvproof.model import config
from kvproof.model.arithmetic import counts
from kvproof.model.reference.blocks import groups, pool
from kvproof.model.reference.blocks.kv_event_queue import (
    reporting_stored,
    reporting_stored_inside,
)
from kvproof.model.state import DRAFT, NULL, Engine, Request


def cache(
    cfg: config.EngineConfig, engine: Engine, request: Request, upto: int
) -> tuple[Engine, Request]:
    """Cache the full blocks of the first `upto` tokens that have a hash and that
    `num_cached_blocks` does not count yet."""
    if not cfg.prefix_caching:
        return engine, request
    num_cached_blocks = list(request.num_cached_blocks)
    ahead = cfg.hash_lookahead_tokens
    tokens = request.tokens.ljust(upto + ahead, DRAFT)
    for index, group in enumerate(cfg.groups):
        eagle_drop_tokens = group.block_size if cfg.drops_match(group) else 0
        cacheable = upto
        if not cfg.partial_block_hits:
            cacheable = int(counts.cacheable_tokens(upto, cfg.hit_unit, eagle_drop_tokens))
        if ahead:
            cacheable = int(counts.hashed_tokens(cacheable, len(request.tokens), ahead))
        full = counts.full_blocks(cacheable, group.block_size)
        new = []
        for position in range(num_cached_blocks[index], full):
            block = request.tables[index][position]
            key = (index, groups.hashed_prefix(tokens, (position + 1) * group.block_size, ahead))
            if not groups.worth_caching(cfg, request, group, position):
                continue
            before = engine
            engine = pool.cache_block(cfg, engine, key, block)
            if engine.dead:
                return engine, request
            if engine is not before:
                new.append(position)
        looked_at = range(num_cached_blocks[index], full)
        engine = reporting_stored(
            engine, index, group.block_size, ahead, request.tokens, looked_at, new
        )
        if full == num_cached_blocks[index]:
            engine = cached_after_all(cfg, engine, request, index, full)
        if caches_prompt_end(cfg, group):
            engine = _cache_end(cfg, engine, request, index, cacheable)
        num_cached_blocks[index] = max(num_cached_blocks[index], full)
    request = request._replace(num_cached_blocks=tuple(num_cached_blocks))
    return engine.with_request(request), request


def _cache_end(
    cfg: config.EngineConfig, engine: Engine, request: Request, index: int, cacheable: int
) -> Engine:
    """Cache the block in which the prompt ends under a further key: the last prefix inside the
    block at which a hit can end. Attention caches it when its tokens are computed, Mamba where a
    chunk ends exactly there."""
    size = cfg.groups[index].block_size
    end = int(counts.longest_hit_tokens(len(request.prompt), cfg.hash_unit))
    key = (index, groups.hashed_prefix(request.tokens, end, cfg.hash_lookahead_tokens))
    missed = end < cacheable and cfg.groups[index].aligned
    if end % size == 0 or end > cacheable or missed:
        return engine
    block = request.tables[index][int(counts.full_blocks(end, size))]
    if key in engine.blocks[block].keys:
        return engine
    engine = pool.promote(engine, key, block)
    return reporting_stored_inside(engine, *key, cfg.hash_unit)


def caches_prompt_end(cfg: config.EngineConfig, group: config.Group) -> bool:
    """Whether a group caches a prompt's last hashed prefix where it ends inside a block: only where
    a hit can end there."""
    return cfg.partial_block_hits and group.kind != "window"


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
