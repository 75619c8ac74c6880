"""Prefix hits and evictions from the cache."""

from collections.abc import Iterator

from kvproof.invariants.goals.goal import Goal, on_some_engine
from kvproof.invariants.hits import longest
from kvproof.model.config import Cluster
from kvproof.model.events import Schedule
from kvproof.model.step import Step


def _hits(cluster: Cluster, step: Step) -> Iterator[bool]:
    """For each admission with a hit: whether the hit is the longest that leaves one token to
    compute."""
    for admission in step.effects.admissions:
        if admission.hit:
            cfg = cluster.engine(admission.engine)
            known = len(admission.tokens)
            yield admission.hit == longest(cfg, known, known)


def _partly(cluster: Cluster, step: Step, _event: Schedule) -> bool:
    return not all(_hits(cluster, step))


def _fully(cluster: Cluster, step: Step, _event: Schedule) -> bool:
    return any(_hits(cluster, step))


def _evicts(_cluster: Cluster, step: Step, event: Schedule) -> bool:
    before, after = step.before.engine(event.engine).cached, step.after.engine(event.engine).cached
    if before == after:
        return False
    kept = {(key, block) for key, blocks in after for block in blocks}
    return any((key, block) not in kept for key, blocks in before for block in blocks)


_caches = on_some_engine(lambda engine: engine.prefix_caching)

GOALS = (
    Goal(
        "partial_hit",
        "a prompt hits a part of its longest possible hit",
        *(Schedule, _partly, "hybrid-siblings", "full", _caches),
    ),
    Goal(
        "full_hit",
        "a prompt hits its longest possible hit",
        *(Schedule, _fully, "full", "state", _caches),
    ),
    Goal(
        "eviction",
        "a step evicts a cached block",
        *(Schedule, _evicts, "full-evicting", "full", _caches),
    ),
)
