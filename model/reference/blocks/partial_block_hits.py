"""Hits that end inside a block, and the private copies that keep a cached block as it is.

Beside a Mamba group a prefix is cached also where it ends inside a block: a prompt's last prefix
that has a hash. Full attention has it in a block that is filled on; a Mamba state is the running
one. Two would write what is cached, and both get a copy instead. A request that hits inside a
block copies the block and writes the copy. A request that goes on from a state that is cached
inside its block keeps the block, and the copy is cached in its place.

Copies are made by the worker, all at once, before the step computes. Until then both blocks are
held. So a block that this very step fills cannot be copied in it.

Sources: `_has_partial_local_hit`, `_apply_cow`, `MambaManager.allocate_new_blocks` and
`take_kv_cache_block_copies` of vLLM V1.
"""

from collections.abc import Sequence

from kvproof.model import config, memory
from kvproof.model.arithmetic import counts
from kvproof.model.reference.blocks import pool
from kvproof.model.reference.rules import Rules
from kvproof.model.state import Engine, Request, Table
from kvproof.model.step import Copy, Read


def last_prefix(cfg: config.Engine, prompt: int) -> int:
    """The tokens of a prompt's last prefix that has a hash and leaves a token to compute."""
    return int(counts.longest_hit_tokens(prompt, cfg.hash_unit))


def goes_on_from_cached(
    cfg: config.Engine, engine: Engine, request: Request, index: int, rules: Rules
) -> bool:
    """Whether the running state of a request is cached, inside its block."""
    group = cfg.groups[index]
    position, inside = divmod(request.computed, group.block_size)
    if not (cfg.partial_block_hits and group.aligned and inside):
        return False
    table = request.tables[index]
    return position < len(table) and rules.is_copied_first(engine.blocks[table[position]])


def copies(
    cfg: config.Engine, engine: Engine, request: Request, index: int, fresh: bool, rules: Rules
) -> int:
    """Blocks a group copies when the request goes on: one for the block that its hit ends inside,
    if it is `fresh`, or for its running state, if that is cached."""
    if fresh:
        return int(counts.copies_of_hit(request.hit, cfg.groups[index].block_size))
    return int(goes_on_from_cached(cfg, engine, request, index, rules))


def copy_block(
    cfg: config.Engine, engine: Engine, request: Request, index: int, fresh: bool, rules: Rules
) -> tuple[Engine, Table]:
    """Take a block for a copy, and hold both until it is made. Gives the table after it."""
    table = request.tables[index]
    start = request.hit if fresh else request.computed
    position = start // cfg.groups[index].block_size
    source = table[position]
    engine, (target,) = pool.take(engine, 1, rules)
    if fresh:
        engine = pool.touch(engine, (target,))
        table = (*table[:position], target, *table[position + 1 :])
    else:
        engine = pool.touch(pool.move_keys(engine, source, target, rules), (source,))
    return engine._replace(copies=(*engine.copies, (index, source, target))), table


def filled_by_step(
    cfg: config.Engine,
    engine: Engine,
    scheduled: list[tuple[str, int]],
    index: int,
    block: int,
    slots: int,
) -> bool:
    """Whether this step fills one of the first slots of an attention block: by a copy, or by what
    it computes."""
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
    """The copies of the step, those of the first group first."""
    ordered = sorted(engine.copies, key=lambda copy: copy[0])
    return tuple(Copy(engine.name, source, target) for _, source, target in ordered)


def carried_out(engine: Engine, rules: Rules) -> Engine:
    """The copies of the step are made, and their blocks let go."""
    pairs = [(source, target) for _, source, target in handed_out(engine)]
    engine = memory.copied(engine, pairs)
    held = [block for pair in pairs for block in pair]
    return pool.release(engine, held, rules)._replace(copies=())


def run_step(
    cfg: config.Engine, engine: Engine, batch: Sequence[tuple[Request, int]], rules: Rules
) -> tuple[Engine, tuple[Read, ...]]:
    """The worker makes the copies of a step, and then computes it."""
    return memory.run(cfg, carried_out(engine, rules), batch)
