"""The claim about a pool's counts, for all sizes. It is inductive."""

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


def pool_claims() -> Mapping[str, Claim]:
    """The claims about a pool, by name."""
    return {claim.__name__: claim for claim in (pool_adds_up,)}
