"""After a finding that a known finding explains, a run continues from the observed state.

From then on each block is assumed to hold what the cache and its requests record for it, and
listeners to KV events are assumed to know what is cached. So the consequences of one wrong block
are reported once, and they hide no later finding.
"""

from kvproof.invariants.memory import promised
from kvproof.model import memory
from kvproof.model.config import Cluster
from kvproof.model.state import NULL, Engine, State
from kvproof.model.step import Step


def believed(cluster: Cluster, step: Step) -> State:
    """The state after a step, in which each block holds what the cache and its requests record for
    it."""
    engines = tuple(_engine(cluster, step, engine) for engine in step.after.engines)
    return step.after._replace(engines=engines)


def _engine(cluster: Cluster, step: Step, engine: Engine) -> Engine:
    cfg, held = cluster.engine(engine.name), list(engine.memory)
    for (index, prefix), blocks in engine.cached:
        width = memory.width(cfg, cfg.groups[index])
        slots = dict(enumerate(promised(cfg, (index, prefix))))
        if cfg.groups[index].attention and width > cfg.groups[index].block_size:
            slots[width - 1] = prefix
        for block in blocks:
            memory.write(held, block, index, width, slots)
    for read in step.effects.reads:
        if read.engine == engine.name and read.found != read.expected and read.block != NULL:
            width = memory.width(cfg, cfg.groups[read.group])
            memory.write(held, read.block, read.group, width, {read.slot: read.expected})
    engine = engine._replace(memory=tuple(held))
    if engine.reports is None:
        return engine
    mirror = tuple(sorted(key for key, blocks in engine.cached if blocks))
    return engine._replace(ghost=engine.ghost._replace(mirror=mirror))
