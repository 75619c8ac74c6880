"""All coverage goals. A new goal is an entry of a `GOALS`, and a new file in this folder is found
by itself."""

from collections.abc import Iterable, Iterator

import kvproof.invariants.goals as room
from kvproof.invariants.goals.goal import Goal
from kvproof.model.config import Cluster
from kvproof.model.discovery import declared
from kvproof.model.step import Step

GOALS: dict[str, Goal] = {goal.id: goal for goals in declared(room, "GOALS") for goal in goals}
"""The goals by id, feature by feature in alphabetical order."""


def goals_of(cluster: Cluster) -> tuple[Goal, ...]:
    """The goals that are possible with the options of a cluster."""
    return tuple(goal for goal in GOALS.values() if goal.possible(cluster))


class OpenGoals:
    """The possible goals of a cluster that a search has not `met` yet."""

    def __init__(self, cluster: Cluster, met: Iterable[str] = ()) -> None:
        self.cluster = cluster
        self._by_kind: dict[type, list[Goal]] = {}
        known = set(met)
        for goal in goals_of(cluster):
            if goal.id not in known:
                self._by_kind.setdefault(goal.kind, []).append(goal)

    def met(self, step: Step) -> Iterator[str]:
        """The ids of the goals that a step meets."""
        for goal in self._by_kind.get(type(step.event), ()):
            if goal.seen(self.cluster, step, step.event):
                yield goal.id

    def drop(self, name: str) -> None:
        """Do not look for this goal any more."""
        self._by_kind[GOALS[name].kind].remove(GOALS[name])
