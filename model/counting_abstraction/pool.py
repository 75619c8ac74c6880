"""One engine's block pool, in counts, and the claim about them, which is inductive.

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


def may_move(_sizes: PoolSizes, pool: Pool, taken: Num, freed: Num) -> Truth:
    """Whether a step can take and free these numbers of blocks."""
    there = both(taken <= pool.free + freed, freed <= pool.held + taken)
    return all_of(taken >= 0, freed >= 0, there)


def sizes_allowed(sizes: PoolSizes) -> Truth:
    """A pool has at least the null block."""
    return sizes.total >= 1


def pool_adds_up(sizes: PoolSizes, pool: Pool) -> Truth:
    """The free blocks, the held blocks and the null block make up the pool; no count is
    negative."""
    return both(pool.free + pool.held + 1 == sizes.total, both(pool.free >= 0, pool.held >= 0))


def pool_system() -> System:
    """The system of a pool. A step takes blocks from the queue (new blocks, and cached blocks of a
    hit that nobody holds), and frees blocks whose last reference it drops."""
    chosen = {name: at_least(0) for name in ("taken", "freed")}
    return System(
        "pool",
        lambda sizes: Pool(sizes.total - 1),
        (Action("move", lambda _s, _p: True, moved, lambda _s: chosen, may_move),),
        {"pool_adds_up": pool_adds_up},
        PoolSizes,
        sizes_allowed,
    )
