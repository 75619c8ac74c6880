"""vllm#42571: one batch of freed blocks has the same block twice."""

from collections import Counter
from collections.abc import Iterable

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.counting_abstraction.pool import Pool, PoolSizes, moved
from kvproof.model.faults.claims import claims
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks.pool import release, with_blocks
from kvproof.model.state import NULL, Engine


def twice(engine: Engine, blocks: Iterable[int]) -> Engine:
    """Remove one reference of each block before it is freed."""
    freed = tuple(blocks)
    once = {
        number: engine.blocks[number]._replace(refs=engine.blocks[number].refs - count)
        for number, count in Counter(freed).items()
        if number != NULL
    }
    return release(with_blocks(engine, once), freed)


def twice_in_counts(
    sizes: PoolSizes, pool: Pool, taken: Num, shared: Num, freed: Num, dropped: Num
) -> Pool:
    """Each dropped reference is removed twice."""
    after = moved(sizes, pool, taken, shared, freed, dropped)
    return after._replace(references=after.references - dropped)


FAULT = Fault(
    name="double_free",
    origin="vllm#42571",
    in_vllm="BlockPool.free_blocks",
    mistake="a freed block loses two references",
    replaces={
        "reference.blocks.pool:release": twice,
        "counting_abstraction.pool:moved": twice_in_counts,
    },
    breaks=(
        "pool_adds_up",
        "references_are_exact",
    ),
    cluster="full",
    trace_events=3,
    refutes=claims("pool", "held_is_referenced"),
)
