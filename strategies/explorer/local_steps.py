"""Steps of one engine, computed once for all states in which this engine is equal.

Most events concern one engine and the fields outside the engines. Such a step is computed with a
placeholder for each other engine, and cached. This is sound without an assumption: the placeholder
gives only its name and raises an exception for any other access, and then the step is computed with
all engines. The same applies to the checks of a step.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from kvproof.invariants.goals.registry import OpenGoals
from kvproof.invariants.invariant import Invariant, broken
from kvproof.model.config import Cluster
from kvproof.model.events import Event, bare
from kvproof.model.reference import apply as model
from kvproof.model.state import State
from kvproof.model.step import Effects, Step
from kvproof.strategies.explorer.collapse import Collapse, Parts

KEPT_MAX = 200_000
"""The maximum number of cached steps, about 1 KiB each. When it is reached, the cache is
cleared."""


class Unseen(Exception):
    """A placeholder of an engine was accessed."""


class Absent:
    """The placeholder of an engine. It has a name; any other access raises Unseen."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def _refuse(self, *_anything: Any) -> NoReturn:
        raise Unseen

    __getattr__ = __getitem__ = __iter__ = __len__ = __eq__ = __hash__ = __bool__ = _refuse


class Local(NamedTuple):
    """A step of one engine: the number of the engine after it, the numbers of the fields outside
    the engines, and the checks that need the whole step. `breaks`: some check fails. `goals`: the
    coverage goals that it reaches, None if they too need the whole step."""

    event: Event
    bare: Event
    effects: Effects
    engine: int
    between: Parts
    breaks: bool
    whole: tuple[Invariant, ...]
    goals: tuple[str, ...] | None


class LocalStep(NamedTuple):
    """A step from one state: the resolved event without block ids, the state after it, whether a
    check of the step fails, and the coverage goals that it reaches."""

    event: Event
    parts: Parts
    breaks: bool
    goals: tuple[str, ...]


class LocalSteps:
    """Takes steps from numbered states. `of_step` are the invariants that every step is checked
    against, and `goals` are the coverage goals that are not yet reached."""

    def __init__(
        self, cluster: Cluster, of_step: Sequence[Invariant], collapse: Collapse, goals: OpenGoals
    ) -> None:
        self.cluster, self.of_step = cluster, of_step
        self.collapse = collapse
        self.goals = goals
        self.places = {engine.name: place for place, engine in enumerate(cluster.engines)}
        self.absent = tuple(Absent(engine.name) for engine in cluster.engines)
        self._known: dict[Any, Local | None] = {}

    def take(self, parts: Parts, event: Event) -> LocalStep:
        """The step of an event from a state."""
        place = self.places.get(getattr(event, "engine", ""))
        local = None if place is None else self._local(parts, event, place)
        if local is None or place is None:
            step = model.apply(self.cluster, self.collapse.state(parts), event)
            breaks = next(broken(self.cluster, step, self.of_step), None) is not None
            goals = tuple(self.goals.met(step))
            return LocalStep(bare(step.event), self.collapse.parts(step.after), breaks, goals)
        count = self.collapse.engines
        after = (*parts[:place], local.engine, *parts[place + 1 : count], *local.between)
        breaks = local.breaks
        goals = local.goals or ()
        if local.goals is None or (local.whole and not breaks):
            states = self.collapse.state(parts), self.collapse.state(after)
            step = Step(states[0], local.event, local.effects, states[1])
            breaks = breaks or next(broken(self.cluster, step, local.whole), None) is not None
            goals = tuple(self.goals.met(step))
        return LocalStep(local.bare, after, breaks, goals)

    def _local(self, parts: Parts, event: Event, place: int) -> Local | None:
        """The step of one engine; None if it depends on the other engines."""
        key = (event, parts[place], parts[self.collapse.engines :])
        if key not in self._known:
            if len(self._known) >= KEPT_MAX:
                self._known.clear()
            try:
                self._known[key] = self._compute(parts, event, place)
            except Unseen:
                self._known[key] = None
        return self._known[key]

    def _compute(self, parts: Parts, event: Event, place: int) -> Local:
        whole = self.collapse.state(parts)
        engines: list[Any] = list(self.absent)
        engines[place] = whole.engines[place]
        alone = State(tuple(engines), *whole[1:])
        step = model.apply(self.cluster, alone, event)
        breaks, unsure = False, []
        for invariant in self.of_step:
            try:
                breaks = breaks or any(True for _ in invariant.check(self.cluster, step))
            except Unseen:
                unsure.append(invariant)
        try:
            goals = tuple(self.goals.met(step))
        except Unseen:
            goals = None
        return Local(
            step.event,
            bare(step.event),
            step.effects,
            self.collapse.number(step.after.engines[place]),
            tuple(map(self.collapse.number, step.after[1:])),
            breaks,
            tuple(unsure),
            goals,
        )
