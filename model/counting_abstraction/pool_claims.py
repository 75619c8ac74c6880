"""The claims about a pool's counts, for all sizes. Together they are inductive."""

from collections.abc import Callable, Mapping

from kvproof.model.arithmetic.algebra import Truth, both
from kvproof.model.counting_abstraction.pool import Pool, PoolSizes

Claim = Callable[[PoolSizes, Pool], Truth]


def sizes_allowed(sizes: PoolSizes) -> Truth:
    """A pool has at least the null block."""
    return sizes.total >= 1


def pool_adds_up(sizes: PoolSizes, pool: Pool) -> Truth:
    """The free blocks, the held blocks and the null block make up the pool; no count is
    negative."""
    return both(pool.free + pool.held + 1 == sizes.total, both(pool.free >= 0, pool.held >= 0))


def held_is_referenced(_sizes: PoolSizes, pool: Pool) -> Truth:
    """Each held block has a reference, and without held blocks there is no reference."""
    return both(pool.held <= pool.references, (pool.held == 0) == (pool.references == 0))


def pool_claims() -> Mapping[str, Claim]:
    """The claims about a pool, by name."""
    return {claim.__name__: claim for claim in (pool_adds_up, held_is_referenced)}
