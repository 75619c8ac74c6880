"""Steps computed once for all states that are equal in what the step depends on.

Most steps look at few parts of a state: one engine, and perhaps the transfer of one request. Such a
step is computed with a placeholder for each other part, and cached. This is sound without an
assumption: a placeholder raises an exception when it is accessed, and then the step is computed again
with this part. The same applies to the checks of a step.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from kvproof.invariants.goals.registry import OpenGoals
from kvproof.invariants.invariant import Invariant, broken
from kvproof.model.config import Cluster
from kvproof.model.events import Event, bare
from kvproof.model.reference import apply as model
from kvproof.strategies.explorer.collapse import Collapse, Parts
from kvproof.strategies.explorer.hidden import Unseen, hidden_parts

KEPT_MAX = 200_000
"""The maximum number of cached steps, about 1 KiB each. When it is reached, the cache is
cleared."""


class LocalStep(NamedTuple):
    """A step: the resolved event without block ids, the parts that it changes (place and new
    number), whether a check of the step fails, and the coverage goals that it reaches."""

    event: Event
    changes: tuple[tuple[int, int], ...]
    breaks: bool
    goals: tuple[str, ...]

    def after(self, parts: Parts) -> Parts:
        """The parts of a state after this step."""
        new = list(parts)
        for place, number in self.changes:
            new[place] = number
        return tuple(new)


class Branch:
    """Which step an event is depends on the part at this place: a step or a further branch for each
    number of the part."""

    __slots__ = ("known", "place")

    def __init__(self, place: int) -> None:
        self.place = place
        self.known: dict[int, Branch | LocalStep] = {}


class LocalSteps:
    """Takes steps from numbered states. `of_step` are the invariants that every step is checked
    against, and `goals` are the coverage goals that are not yet reached."""

    def __init__(
        self, cluster: Cluster, of_step: Sequence[Invariant], collapse: Collapse, goals: OpenGoals
    ) -> None:
        self.cluster, self.of_step = cluster, of_step
        self.collapse = collapse
        self.goals = goals
        self.kept = 0
        self._known: dict[Event, Branch] = {}
        self._hidden = hidden_parts(collapse)

    def take(self, parts: Parts, event: Event) -> LocalStep:
        """The step of an event from a state."""
        branch = self._known.get(event)
        if branch is None:
            branch = self._known[event] = Branch(self._first(event))
        looked_at = []
        while True:
            place = branch.place
            looked_at.append(place)
            found = branch.known.get(parts[place])
            if found is None:
                try:
                    found = self._compute(parts, event, looked_at)
                    self.kept += 1
                except Unseen as unseen:
                    found = Branch(unseen.place)
                    self.retries += 1
                branch.known[parts[place]] = found
            if type(found) is LocalStep:
                return found
            branch = found

    retries = 0

    def _first(self, event: Event) -> int:
        """The part that an event looks at in any case: its engine, or its transfer."""
        engine = getattr(event, "engine", None)
        if engine is None:
            return len(self.collapse.engines) + self.collapse.transfers.index(event.request)
        return self.collapse.engines.index(engine)

    def _compute(self, parts: Parts, event: Event, looked_at: Sequence[int]) -> LocalStep:
        """The step and its checks. Raises Unseen if they look at another part too."""
        shown = list(self._hidden)
        for place in looked_at:
            shown[place] = self.collapse.components[parts[place]]
        step = model.apply(self.cluster, self.collapse.join(shown), event)
        breaks = next(broken(self.cluster, step, self.of_step), None) is not None
        goals = tuple(self.goals.met(step))
        changes = []
        for place, part in enumerate(self.collapse.split(step.after)):
            if place in looked_at:
                number = self.collapse.number(part)
                if number != parts[place]:
                    changes.append((place, number))
            elif part is not shown[place] and part != shown[place]:
                raise Unseen(place)
        return LocalStep(bare(step.event), tuple(changes), breaks, goals)
