"""Computes the counts of block pools from the states of a step (see `pool`)."""

from collections.abc import Iterator

from kvproof.model.config import Cluster
from kvproof.model.counting_abstraction.observed import Observed, move
from kvproof.model.counting_abstraction.pool import Pool, PoolSizes
from kvproof.model.state import NULL, Engine
from kvproof.model.step import Step


def pool_counts(engine: Engine) -> Pool:
    """The counts of an engine's pool."""
    held = [b.refs for number, b in enumerate(engine.blocks) if number != NULL and b.refs]
    return Pool(len(engine.free), len(held), sum(held))


def observed(cluster: Cluster, step: Step) -> Iterator[Observed]:
    """How a step changed each pool. A block that leaves the queue and returns to it within the step
    is not visible."""
    for before, after in step.touched:
        if after.dead or before.blocks == after.blocks:
            continue
        counts = pool_counts(before), pool_counts(after)
        pairs = list(zip(before.blocks, after.blocks, strict=True))[1:]
        taken = sum(1 for old, new in pairs if not old.refs and new.refs)
        freed = sum(1 for old, new in pairs if old.refs and not new.refs)
        # References gained beyond those of taken blocks, less those dropped.
        net = counts[1].references - counts[0].references - taken
        dropped = max(freed, -net)
        done = move(
            "move",
            taken=(taken,),
            shared=(net + dropped,),
            freed=(freed,),
            dropped=(dropped,),
        )
        yield Observed(
            f"the pool of {after.name}",
            "pool",
            PoolSizes(cluster.engine(after.name).num_blocks),
            counts[0],
            (done,),
            counts[1],
        )
