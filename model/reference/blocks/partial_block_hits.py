"""Hits that end inside a block, and the private copies that protect a cached block.

With a Mamba group, a prompt's last prefix with a hash is cached even where it ends inside a block.
The full-attention block is filled further; the Mamba block has the running state. Two kinds of
requests would then write to a cached block, and both use a copy. A request whose hit ends inside a
block copies the block and writes to the copy. A request that continues from a state that is cached
inside its block keeps the block, and the copy is cached instead.

The worker makes all copies at once, before the step computes. Until then both blocks are held. So a
step cannot copy a block that the same step fills.

Sources: `_has_partial_local_hit`, `_apply_cow`, `MambaManager.allocate_new_blocks` and
`take_kv_cache_block_copies` of vLLM V1.
"""

from collections.abc import Sequence

from kvproof.model import config, memory
from kvproof.model.arithmetic import counts
from kvproof.model.reference.blocks import pool
from kvproof.model.state import Engine, Request, Table
from kvproof.model.step import Copy, Read


def last_prefix(cfg: config.EngineConfig, prompt: int) -> int:
    """The length in tokens of a prompt's last prefix that has a hash and leaves a token to
    compute."""
    return int(counts.longest_hit_tokens(prompt, cfg.hash_unit))


def goes_on_from_cached(
    cfg: config.EngineConfig, engine: Engine, request: Request, index: int
) -> bool:
    """Whether the running state of a request is cached inside its block."""
    group = cfg.groups[index]
    position, inside = divmod(request.computed, group.block_size)
    if not (cfg.partial_block_hits and group.aligned and inside):
        return False
    table = request.tables[index]
    return position < len(table) and engine.blocks[table[position]].key is not None


def copies(
    cfg: config.EngineConfig, engine: Engine, request: Request, index: int, fresh: bool
) -> int:
    """The number of blocks that a group copies when the request continues: 1 where the hit of a
    `fresh` request ends inside a block, or where the running state is cached; else 0."""
    if fresh:
        return int(counts.copies_of_hit(request.hit, cfg.groups[index].block_size))
    return int(goes_on_from_cached(cfg, engine, request, index))


def copy_block(
    cfg: config.EngineConfig, engine: Engine, request: Request, index: int, fresh: bool
) -> tuple[Engine, Table]:
    """Take a block for a copy, and hold both blocks until the copy is made. Returns the engine and
    the new table."""
    table = request.tables[index]
    start = request.hit if fresh else request.computed
    position = start // cfg.groups[index].block_size
    source = table[position]
    engine, (target,) = pool.take(engine, 1)
    if fresh:
        engine = pool.touch(engine, (target,))
        table = (*table[:position], target, *table[position + 1 :])
    else:
        engine = pool.touch(pool.move_keys(engine, source, target), (source,))
    return engine._replace(copies=(*engine.copies, (index, source, target))), table


def filled_by_step(
    cfg: config.EngineConfig,
    engine: Engine,
    scheduled: list[tuple[str, int]],
    index: int,
    block: int,
    slots: int,
) -> bool:
    """Whether this step fills one of the first `slots` slots of an attention block, by a copy or by
    computing."""
    if any(target == block for _, _, target in engine.copies):
        return True
    size = cfg.groups[index].block_size
    for name, tokens in scheduled:
        request = engine.request(name)
        for position in range(request.computed - tokens, request.computed):
            if request.tables[index][position // size] == block and position % size < slots:
                return True
    return False


def handed_out(engine: Engine) -> tuple[Copy, ...]:
    """The copies of the step, in the order of the groups."""
    ordered = sorted(engine.copies, key=lambda copy: copy[0])
    return tuple(Copy(engine.name, source, target) for _, source, target in ordered)


def carried_out(engine: Engine) -> Engine:
    """Make the copies of the step, and free their source and target references."""
    pairs = [(source, target) for _, source, target in handed_out(engine)]
    engine = memory.copied(engine, pairs)
    held = [block for pair in pairs for block in pair]
    return pool.release(engine, held)._replace(copies=())


def run_step(
    cfg: config.EngineConfig, engine: Engine, batch: Sequence[tuple[Request, int]]
) -> tuple[Engine, tuple[Read, ...]]:
    """Make the copies of a step, then execute the step."""
    return memory.run(cfg, carried_out(engine), batch)
