"""KV events, which report to a listener what is cached."""

from kvproof.invariants.goals.goal import Goal, on_some_engine
from kvproof.model.config import Cluster
from kvproof.model.events import ResetPrefixCache, Schedule
from kvproof.model.kv_events import Cleared, Removed, Stored
from kvproof.model.step import Step


def _several(_cluster: Cluster, step: Step, _event: Schedule) -> bool:
    return any(isinstance(r, Stored) and len(r.prefixes) > 1 for r in step.effects.reports)


def _removed(_cluster: Cluster, step: Step, _event: Schedule) -> bool:
    return any(isinstance(r, Removed) for r in step.effects.reports)


def _cleared(_cluster: Cluster, step: Step, _event: ResetPrefixCache) -> bool:
    return any(isinstance(r, Cleared) for r in step.effects.reports)


_has_events = on_some_engine(lambda engine: engine.kv_events)

GOALS = (
    Goal(
        "event_of_several_blocks",
        "one event reports several blocks in a row",
        *(Schedule, _several, "events", "full", _has_events),
    ),
    Goal(
        "event_of_removal",
        "an event reports a key as removed",
        *(Schedule, _removed, "events", "full-evicting", _has_events),
    ),
    Goal(
        "event_of_reset",
        "an event reports that the cache is empty",
        *(ResetPrefixCache, _cleared, "events", "store"),
        possible=lambda cluster: _has_events(cluster) and cluster.resets,
    ),
)
