"""Hits that end inside a block, and their copies."""

from kvproof.invariants.goals.goal import Goal, on_some_engine
from kvproof.model.config import Cluster
from kvproof.model.events import Schedule
from kvproof.model.step import Step


def _hits_inside(cluster: Cluster, step: Step, event: Schedule) -> bool:
    sizes = [g.block_size for g in cluster.engine(event.engine).groups]
    return any(a.hit % size for a in step.effects.admissions for size in sizes)


def _copies_state(_cluster: Cluster, step: Step, _event: Schedule) -> bool:
    """A copy in a step without a hit is a copy of a running state."""
    hits = any(admission.hit for admission in step.effects.admissions)
    return bool(step.effects.copies) and not hits


_inside = on_some_engine(lambda engine: engine.partial_block_hits)

GOALS = (
    Goal(
        "hit_inside_block",
        "a hit ends inside a block, and the block is copied",
        *(Schedule, _hits_inside, "partial", "hybrid", _inside),
    ),
    Goal(
        "cached_state_copied",
        "a request continues from a cached state inside its block, and the block is copied",
        *(Schedule, _copies_state, "partial", "hybrid", _inside),
    ),
)
