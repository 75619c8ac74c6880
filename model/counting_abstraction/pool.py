"""One engine's block pool, in counts.

Sources: `BlockPool`, `FreeKVCacheBlockQueue` of vLLM V1.
"""

from typing import NamedTuple

from kvproof.model.arithmetic.algebra import Num, Truth, all_of, both
from kvproof.model.arithmetic.ranges import at_least
from kvproof.model.arithmetic.system import Action, System


class PoolSizes(NamedTuple):
    """The size that a cluster fixes: the number of blocks of the pool, the null block included."""

    total: Num


class Pool(NamedTuple):
    """The state of a pool: the number of `free` blocks in the queue, and of `held` blocks, which
    have a reference."""

    free: Num
    held: Num = 0


def moved(_sizes: PoolSizes, pool: Pool, taken: Num, freed: Num) -> Pool:
    """The counts after a step (see `pool_system`)."""
    return Pool(pool.free - taken + freed, pool.held + taken - freed)


def pool_system() -> System:
    """The system of a pool. A step takes blocks from the queue (new blocks, and cached blocks of a
    hit that nobody holds), and frees blocks whose last reference it drops."""

    def may_move(_sizes: PoolSizes, pool: Pool, taken: Num, freed: Num) -> Truth:
        there = both(taken <= pool.free + freed, freed <= pool.held + taken)
        return all_of(taken >= 0, freed >= 0, there)

    return System(
        "pool",
        lambda sizes: Pool(sizes.total - 1),
        (
            Action(
                "move",
                lambda _s, _p: True,
                moved,
                lambda _s: {n: at_least(0) for n in ("taken", "freed")},
                may_move,
            ),
        ),
    )
