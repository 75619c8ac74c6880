"""Resets of the prefix cache."""

from kvproof.invariants.goals.goal import Goal, happens
from kvproof.model.config import Cluster
from kvproof.model.events import ResetPrefixCache, ResetRunning
from kvproof.model.step import Step


def _empties(_cluster: Cluster, step: Step, event: ResetPrefixCache) -> bool:
    return not step.after.engine(event.engine).cached


def _refused(_cluster: Cluster, step: Step, event: ResetPrefixCache) -> bool:
    return bool(step.after.engine(event.engine).cached)


def _under_load(cluster: Cluster) -> bool:
    return cluster.resets_any_time


GOALS = (
    Goal(
        "reset",
        "the prefix cache is emptied",
        *(ResetPrefixCache, _empties, "resetting", "full"),
        possible=lambda cluster: cluster.resets or cluster.resets_any_time,
    ),
    Goal(
        "reset_refused",
        "a reset is refused because blocks are in use",
        *(ResetPrefixCache, _refused, "resetting", "store", _under_load),
    ),
    Goal(
        "reset_with_preemption",
        "all running requests are preempted, and the cache is emptied",
        *(ResetRunning, happens, "resetting", "store", _under_load),
    ),
)
