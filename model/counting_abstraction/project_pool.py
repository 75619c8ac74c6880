"""Computes the counts of block pools from the states of a step (see `pool`)."""

from collections.abc import Iterator

from kvproof.model.config import Cluster
from kvproof.model.counting_abstraction.observed import Observed, move
from kvproof.model.counting_abstraction.pool import Pool, PoolSizes
from kvproof.model.state import NULL, Engine
from kvproof.model.step import Step


def pool_counts(engine: Engine) -> Pool:
    """The counts of an engine's pool."""
    held = sum(1 for number, block in enumerate(engine.blocks) if number != NULL and block.refs)
    return Pool(len(engine.free), held)


def observed(cluster: Cluster, step: Step) -> Iterator[Observed]:
    """How a step changed each pool. A block that leaves the queue and returns to it within the step
    is not visible."""
    for before, after in step.touched:
        if after.dead or before.blocks == after.blocks:
            continue
        pairs = list(zip(before.blocks, after.blocks, strict=True))[1:]
        taken = sum(1 for old, new in pairs if not old.refs and new.refs)
        freed = sum(1 for old, new in pairs if old.refs and not new.refs)
        yield Observed(
            f"the pool of {after.name}",
            "pool",
            PoolSizes(cluster.engine(after.name).num_blocks),
            pool_counts(before),
            (move("move", taken=(taken,), freed=(freed,)),),
            pool_counts(after),
        )
