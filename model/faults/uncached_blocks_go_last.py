"""vllm#42656: all freed blocks join the tail of the free queue, so that blocks which can be hit are
evicted while blocks without a key are free. With prefix caching off, a block that was just used is
taken last (vllm#51482)."""

from collections.abc import Iterable

from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks import pool
from kvproof.model.state import NULL, Engine


def joining_the_tail(engine: Engine, blocks: Iterable[int]) -> Engine:
    """Remove one reference of each block; those without a reference join the tail of the queue."""
    changed = dict(enumerate(engine.blocks))
    freed: list[int] = []
    for number in blocks:
        if number != NULL:
            changed[number] = changed[number]._replace(refs=changed[number].refs - 1)
            freed += [number] * (changed[number].refs <= 0)
    return pool.with_blocks(engine, changed)._replace(free=(*engine.free, *freed))


FAULT = Fault(
    name="uncached_blocks_go_last",
    origin="vllm#42656",
    mistake="a freed block joins the tail of the free queue, also if it is not cached",
    replaces={"reference.blocks.pool:release": joining_the_tail},
    breaks=("uncached_blocks_are_reused_at_once", "unneeded_blocks_are_reused_first"),
    cluster="window",
    trace_events=5,
)
