"""A freed block does not return to the pool (sglang#16067, there a Mamba slot). The pool becomes
smaller with every request."""

from collections.abc import Iterable

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.counting_abstraction.pool import Pool, PoolSizes, moved
from kvproof.model.faults.claims import claims
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks.pool import release
from kvproof.model.state import Engine


def outside_the_queue(engine: Engine, blocks: Iterable[int]) -> Engine:
    """Remove a reference of each block, and put none into the free queue."""
    return release(engine, blocks)._replace(free=engine.free)


def outside_the_queue_in_counts(
    sizes: PoolSizes, pool: Pool, taken: Num, shared: Num, freed: Num, dropped: Num
) -> Pool:
    """The free queue only becomes shorter."""
    after = moved(sizes, pool, taken, shared, freed, dropped)
    return after._replace(free=after.free - freed)


FAULT = Fault(
    name="freed_block_leaks",
    origin="sglang#16067",
    in_vllm="BlockPool.free_blocks",
    mistake="a block without references is not put into the free queue",
    replaces={
        "reference.blocks.pool:release": outside_the_queue,
        "counting_abstraction.pool:moved": outside_the_queue_in_counts,
    },
    breaks=("pool_adds_up", "all_blocks_return"),
    cluster="full",
    trace_events=3,
    refutes=claims("pool", "pool_adds_up"),
)
