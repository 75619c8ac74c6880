"""The blocks of a request are freed from the front. The first block of its prompt is then evicted
first, and without it no other can be hit."""

from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks import pool
from kvproof.model.state import Engine, Request


def front_first(engine: Engine, request: Request) -> Engine:
    """Free all blocks of a request, group by group, the first block first."""
    for table in request.tables:
        engine = pool.release(engine, table)
    return engine


FAULT = Fault(
    name="prefix_is_freed_first",
    origin="KVCacheManager.free",
    mistake="the blocks of a request are freed from the front, not from the tail",
    replaces={"reference.blocks.pool:release_all": front_first},
    breaks=("unneeded_blocks_are_reused_first",),
    cluster="full",
    trace_events=3,
)
