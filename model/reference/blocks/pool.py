"""The block pool: references, the free queue, and the map from keys to blocks.

Sources: `BlockPool` and `FreeKVCacheBlockQueue` of vLLM V1. Blocks are taken from the head of the
queue. Freed blocks that are cached join the tail, other freed blocks the head, so that cached
blocks are evicted last and in least-recently-used order. Callers free the tail blocks of a request
first.
"""

from collections.abc import Iterable

from kvproof.model import config
from kvproof.model.errors import NotAllowed
from kvproof.model.kv_events import Removed
from kvproof.model.reference.blocks.kv_event_queue import reporting
from kvproof.model.state import NULL, Block, Death, Engine, Key, Request


class Exhausted(NotAllowed):
    """More blocks are taken than are free. The prediction was wrong, and vLLM's engine dies."""


def is_idle(engine: Engine) -> bool:
    """Whether no block is in use."""
    return len(engine.free) == len(engine.blocks) - 1


def with_blocks(engine: Engine, changed: dict[int, Block]) -> Engine:
    """The engine with some blocks replaced."""
    blocks = list(engine.blocks)
    for number, block in changed.items():
        blocks[number] = block
    return engine._replace(blocks=tuple(blocks))


def register(engine: Engine, key: Key, block: int) -> Engine:
    """Cache a block under a key, in addition to its other keys. Another block with the same key
    stays cached and is hit first."""
    entries = dict(engine.cached)
    entries[key] = (*entries.get(key, ()), block)
    engine = engine._replace(cached=tuple(sorted(entries.items())))
    held = engine.blocks[block]
    if held.key is None:
        held = held._replace(key=key)
    else:
        held = held._replace(also=tuple(sorted((*held.also, key))))
    return with_blocks(engine, {block: held})


def forget_key(engine: Engine, key: Key, block: int) -> Engine:
    """Remove a block from the map under one of its keys. Report the removal where it was the last
    block under that key."""
    entries = dict(engine.cached)
    entries[key] = tuple(b for b in entries[key] if b != block)
    if not entries[key]:
        del entries[key]
    engine = engine._replace(cached=tuple(sorted(entries.items())))
    return engine if key in entries else reporting(engine, Removed(*key))


def unregister(engine: Engine, block: int) -> Engine:
    """Remove the cache entries of a block, if it has any."""
    for key in engine.blocks[block].keys:
        engine = forget_key(engine, key, block)
    if engine.blocks[block].key is None:
        return engine
    return with_blocks(engine, {block: engine.blocks[block]._replace(key=None, also=())})


def promote(engine: Engine, key: Key, block: int) -> Engine:
    """Cache a block under a key, and remove its shorter keys."""
    held = engine.blocks[block].key
    if held is not None and len(held[1]) < len(key[1]):
        engine = unregister(engine, block)
    return register(engine, key, block)


def cache_block(cfg: config.EngineConfig, engine: Engine, key: Key, block: int) -> Engine:
    """Cache a full block under its key. The null block is skipped. Where hits do not end
    inside a block, a block that is already cached is left unchanged. The engine dies where the
    block already has this key."""
    if block == NULL:
        return engine
    if key in engine.blocks[block].keys:
        return engine._replace(dead=Death(message=f"block {block} is to be hashed twice"))
    if engine.blocks[block].key is None or cfg.partial_block_hits:
        return promote(engine, key, block)
    return engine


def forget_uncomputed(begun: Engine, engine: Engine, request: Request) -> Engine:
    """Remove the cache entries that the current step made for a request, because the request was
    removed from the step and will not be computed (vllm#57580). `begun` is the engine at the start
    of the step."""
    for block in {b for table in request.tables for b in table if b != NULL}:
        if engine.blocks[block].key != begun.blocks[block].key:
            engine = unregister(engine, block)
    return engine


def move_keys(engine: Engine, source: int, target: int) -> Engine:
    """Cache the block `target` under the keys of `source`, in its place. Nothing is reported,
    because the same keys stay cached."""
    keys, reports = engine.blocks[source].keys, engine.reports
    engine = unregister(engine, source)
    for key in keys:
        engine = register(engine, key, target)
    return engine._replace(reports=reports)


def with_first_free(engine: Engine, blocks: Iterable[int]) -> Engine:
    """The engine with these free blocks at the head of the queue, in this order."""
    first = tuple(dict.fromkeys(blocks))
    rest = list(engine.free)
    for block in first:
        rest.remove(block)
    return engine._replace(free=(*first, *rest))


def take(engine: Engine, count: int) -> tuple[Engine, tuple[int, ...]]:
    """Take blocks from the head of the free queue, and evict their cache entries. Raises Exhausted
    where the queue has too few blocks."""
    if count > len(engine.free):
        raise Exhausted(f"{count} blocks are taken and {len(engine.free)} are free")
    taken = engine.free[:count]
    engine = engine._replace(free=engine.free[count:])
    for block in taken:
        engine = unregister(engine, block)
    referenced = {b: engine.blocks[b]._replace(refs=engine.blocks[b].refs + 1) for b in taken}
    return with_blocks(engine, referenced), taken


def touch(engine: Engine, blocks: Iterable[int]) -> Engine:
    """Reference the cached blocks of a hit; free blocks among them leave the queue."""
    for block in blocks:
        if block == NULL:
            continue
        if engine.blocks[block].refs == 0:
            engine = engine._replace(free=tuple(b for b in engine.free if b != block))
        refs = engine.blocks[block].refs + 1
        engine = with_blocks(engine, {block: engine.blocks[block]._replace(refs=refs)})
    return engine


def release(engine: Engine, blocks: Iterable[int]) -> Engine:
    """Remove one reference of each block, in eviction order."""
    first: list[int] = []
    last: list[int] = []
    changed: dict[int, Block] = {}
    for number in blocks:
        if number == NULL:
            continue
        block = changed.get(number, engine.blocks[number])
        changed[number] = block._replace(refs=block.refs - 1)
        if changed[number].refs <= 0:
            (first if block.key is None else last).append(number)
    return with_blocks(engine, changed)._replace(free=(*first, *engine.free, *last))


def release_all(engine: Engine, request: Request) -> Engine:
    """Free all blocks of a request, group by group, tail first."""
    for table in request.tables:
        engine = release(engine, reversed(table))
    return engine
