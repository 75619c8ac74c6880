"""Sparse retention: only some blocks of window and Mamba groups stay in the cache."""

from kvproof.invariants.goals.goal import Goal, on_some_engine
from kvproof.model.config import Cluster
from kvproof.model.events import Schedule
from kvproof.model.state import NULL
from kvproof.model.step import Step


def _hits(cluster: Cluster, step: Step, event: Schedule) -> bool:
    sparse = cluster.engine(event.engine).retention is not None
    return sparse and any(admission.hit for admission in step.effects.admissions)


def _not_kept(cluster: Cluster, step: Step, event: Schedule) -> bool:
    """A full block of a window or Mamba group is not cached."""
    cfg, engine = cluster.engine(event.engine), step.after.engine(event.engine)
    if cfg.retention is None:
        return False
    for request in engine.requests:
        for group, table, counted in zip(
            cfg.groups, request.tables, request.num_cached_blocks, strict=False
        ):
            looked_at = [b for b in table[:counted] if b != NULL]
            if group.kind != "full" and any(engine.blocks[b].key is None for b in looked_at):
                return True
    return False


_sparse = on_some_engine(lambda engine: engine.retention is not None)

GOALS = (
    Goal(
        "hit_under_retention",
        "a prompt hits although most window and state blocks were not kept",
        *(Schedule, _hits, "sparse-hybrid", "hybrid", _sparse),
    ),
    Goal(
        "block_not_retained",
        "a full block of a window or Mamba group is not cached",
        *(Schedule, _not_kept, "sparse-hybrid", "hybrid", _sparse),
    ),
)
