"""Cache groups beside full attention: of other block sizes, and states that are not cached."""

from kvproof.invariants.goals.goal import Goal, on_some_engine
from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.events import Schedule
from kvproof.model.step import Step


def _has_unequal_blocks(engine: EngineConfig) -> bool:
    return len({g.block_size for g in engine.groups if g.attention or g.aligned}) > 1


def _hits(cluster: Cluster, step: Step, event: Schedule) -> bool:
    hits = any(admission.hit for admission in step.effects.admissions)
    return hits and _has_unequal_blocks(cluster.engine(event.engine))


def _keeps_one_state(engine: EngineConfig) -> bool:
    return any(not (g.attention or g.aligned) for g in engine.groups)


def _reads_state(cluster: Cluster, step: Step, event: Schedule) -> bool:
    groups = cluster.engine(event.engine).groups
    found = (groups[read.group] for read in step.effects.reads)
    return any(not (group.attention or group.aligned) for group in found)


def _mixes(engine: EngineConfig) -> bool:
    return len({g.attention for g in engine.groups}) > 1


def _erases(_cluster: Cluster, step: Step, _event: Schedule) -> bool:
    return bool(step.effects.zeroed)


def _loads_beside_states(cluster: Cluster, step: Step, event: Schedule) -> bool:
    loads = any(admission.external for admission in step.effects.admissions)
    return loads and _mixes(cluster.engine(event.engine))


GOALS = (
    Goal(
        "block_erased",
        "the worker erases new blocks of attention, beside Mamba groups",
        *(Schedule, _erases, "hybrid", "full", on_some_engine(_mixes)),
    ),
    Goal(
        "load_beside_states",
        "a load begins on an engine whose worker erases new blocks",
        *(Schedule, _loads_beside_states, "pd", "hybrid"),
        possible=on_some_engine(lambda e: _mixes(e) and e.has_connector),
    ),
    Goal(
        "hit_of_unequal_blocks",
        "a hit holds in groups of unequal block sizes",
        *(Schedule, _hits, "unequal", "window-wide"),
        possible=on_some_engine(lambda e: _has_unequal_blocks(e) and e.prefix_caching),
    ),
    Goal(
        "uncached_state_read",
        "a request goes on from a state that is cached nowhere",
        *(Schedule, _reads_state, "state", "hybrid", on_some_engine(_keeps_one_state)),
    ),
)
