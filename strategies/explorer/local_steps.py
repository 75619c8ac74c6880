"""Steps computed once for all states that are equal in what the step looks at.

Most steps look at few parts of a state: one engine, and perhaps the transfer of one request. A step
is computed with a placeholder for each other part, and cached by the parts that it looked at. A
placeholder raises an exception when it is accessed, and then the step is computed again with this
part. The same applies to the checks of a step. `collapse` says which questions do not count as
an access; that nobody asks them is the assumption of this cache.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kvproof.invariants.check import Asked, Check
from kvproof.model.config import Cluster
from kvproof.model.events import (
    Event,
    LeaseExpire,
    TransferDone,
    TransferFail,
    TransferLost,
    bare,
)
from kvproof.model.reference import apply as model
from kvproof.model.state import State
from kvproof.model.step import Step
from kvproof.strategies.explorer.collapse import Collapse, Parts, Unseen, guarded, hidden_parts

KEPT_MAX = 200_000
"""The maximum number of cached steps, about 1 KiB each. When it is reached, the cache is
cleared."""


class LocalStep(NamedTuple):
    """A step: the resolved event without block ids, the parts that it changes (place and new
    number), and whether a check of the step fails."""

    event: Event
    changes: tuple[tuple[int, int], ...]
    breaks: bool

    def after(self, parts: Parts) -> Parts:
        """The parts of a state after this step."""
        new = list(parts)
        for place, number in self.changes:
            new[place] = number
        return tuple(new)


class Branch:
    """The step of an event depends on the part at a place: `known` has a step or a further branch
    for each number of the part. `next` is the place of all further branches, if it is the same for
    all that is known."""

    __slots__ = ("known", "next", "place")

    def __init__(self, place: int) -> None:
        self.place = place
        self.known: dict[int, Branch | LocalStep] = {}
        self.next: int | None = None

    def add(self, number: int, found: "Branch | LocalStep") -> None:
        """Add what was found for a number of the part."""
        place = found.place if isinstance(found, Branch) else None
        self.next = place if not self.known or place == self.next else None
        self.known[number] = found


class LocalSteps:
    """Takes steps from numbered states. Of `checks`, those of a step are asked of each step. `kept`
    is the number of cached steps."""

    def __init__(self, cluster: Cluster, checks: Sequence[Check], collapse: Collapse) -> None:
        self.cluster, self.of_step = cluster, Asked(checks, Step, cluster)
        self.collapse = collapse
        self.kept = 0
        self._known: dict[Event, Branch] = {}
        self._hidden = hidden_parts(collapse)
        self._all_hidden = guarded(collapse.join(self._hidden))

    def take(self, parts: Parts, event: Event) -> LocalStep:
        """The step of an event from a state."""
        known: Branch | LocalStep | None = self._known.get(event)
        if known is None:
            known = self._known[event] = Branch(self._first(event))
        looked_at: list[int] = []
        while isinstance(known, Branch):
            looked_at.append(known.place)
            number = parts[known.place]
            found = known.known.get(number)
            if found is None:
                # A step that looks at more than it needs is right, and one that is computed in
                # vain costs more: so this part is expected to lead where all others here do.
                expected = None if known.next is None else Branch(known.next)
                found = expected or self._found(parts, event, looked_at)
                known.add(number, found)
            known = found
        return known

    def _first(self, event: Event) -> int:
        """The part that every step of an event looks at: its engine, or its transfer."""
        if isinstance(event, TransferDone | TransferFail | TransferLost | LeaseExpire):
            return len(self.collapse.engines) + self.collapse.transfers.index(event.request)
        return self.collapse.engines.index(event.engine)

    def _found(self, parts: Parts, event: Event, looked_at: Sequence[int]) -> Branch | LocalStep:
        """Take the step, and cache it behind a branch for each further part that it looks at."""
        if self.kept >= KEPT_MAX:
            self._known.clear()
            self.kept = 0
        try:
            step, after = self._taken(parts, event, looked_at)
        except Unseen as unseen:
            return Branch(unseen.place)
        numbers = ((place, self.collapse.number(after[place])) for place in looked_at)
        changes = tuple((place, number) for place, number in numbers if number != parts[place])
        found: Branch | LocalStep
        found, more = self._checked(parts, step, changes)
        self.kept += 1
        for place in reversed(more):
            branch = Branch(place)
            branch.known[parts[place]] = found
            found = branch
        return found

    def _shown(self, state: State, parts: Parts, places: Sequence[int]) -> State:
        """A state with these parts in place of their placeholders."""
        shown = self.collapse.split(state)
        for place in places:
            shown[place] = self.collapse.components[parts[place]]
        return guarded(self.collapse.join(shown))

    def _taken(
        self, parts: Parts, event: Event, looked_at: Sequence[int]
    ) -> tuple[Step, list[Any]]:
        """The step, with a placeholder for all that it does not look at, and the parts after it.
        Raises Unseen if it looks at, or replaces, another part."""
        before = self._shown(self._all_hidden, parts, looked_at)
        step = model.apply(self.cluster, before, event)
        after = self.collapse.split(step.after)
        for place, part in enumerate(after):
            hidden = self._hidden[place]
            if place not in looked_at and part is not hidden and part != hidden:
                raise Unseen(place)
        return step._replace(after=guarded(step.after)), after

    def _checked(
        self, parts: Parts, step: Step, changes: tuple[tuple[int, int], ...]
    ) -> tuple[LocalStep, list[int]]:
        """The step with the results of its checks, and the further parts at which the checks
        look."""
        more: list[int] = []
        while True:
            try:
                breaks = self.of_step.violated(step)
                return LocalStep(bare(step.event), changes, breaks), more
            except Unseen as unseen:
                more.append(unseen.place)
                before = self._shown(step.before, parts, more)
                step = step._replace(before=before, after=self._shown(step.after, parts, more))
