"""One engine's block pool, in counts.

Sources: `BlockPool`, `FreeKVCacheBlockQueue` of vLLM V1.
"""

from typing import NamedTuple

from kvproof.model.arithmetic.algebra import Num, Truth, all_of, both
from kvproof.model.arithmetic.ranges import at_least
from kvproof.model.arithmetic.system import Action, System


class PoolSizes(NamedTuple):
    """The sizes that a cluster fixes: the number of blocks of the pool, the null block included."""

    total: Num


class Pool(NamedTuple):
    """The counts: `free` blocks in the queue, `held` blocks with a reference, and `references`, the
    entries of all block tables."""

    free: Num
    held: Num = 0
    references: Num = 0


def moved(_sizes: PoolSizes, pool: Pool, taken: Num, shared: Num, freed: Num, dropped: Num) -> Pool:
    """The counts after a step (see `pool_system`)."""
    return Pool(
        pool.free - taken + freed,
        pool.held + taken - freed,
        pool.references + taken + shared - dropped,
    )


def pool_system() -> System:
    """The system of a pool. A step takes blocks from the queue (new blocks, and cached blocks of a
    hit), shares held blocks, and drops references; for `freed` blocks it drops the last
    reference."""

    def may_move(
        _sizes: PoolSizes, pool: Pool, taken: Num, shared: Num, freed: Num, dropped: Num
    ) -> Truth:
        bounds = all_of(taken >= 0, shared >= 0, freed >= 0, dropped >= freed)
        there = both(taken <= pool.free + freed, freed <= pool.held + taken)
        # Each block that stays held keeps a reference.
        kept = pool.references + taken + shared - dropped >= pool.held + taken - freed
        none_left = (pool.held + taken - freed == 0) == (
            pool.references + taken + shared - dropped == 0
        )
        return all_of(bounds, there, kept, none_left)

    return System(
        "pool",
        lambda sizes: Pool(sizes.total - 1),
        (
            Action(
                "move",
                lambda _s, _p: True,
                moved,
                lambda _s: {n: at_least(0) for n in ("taken", "shared", "freed", "dropped")},
                may_move,
            ),
        ),
    )
