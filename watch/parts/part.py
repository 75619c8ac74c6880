"""A part of a watched engine is what some checks are asked about after an event."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kvproof.model.events import Event, Schedule
from kvproof.model.finding import Finding
from kvproof.model.needs import Need
from kvproof.model.state import Engine, State, Transfer
from kvproof.model.step import Effects, Step
from kvproof.watch.shown import Views

if TYPE_CHECKING:
    from kvproof.watch.notes import EngineNotes


class Question(NamedTuple):
    """A step with a part of the engine, that the checks are asked about. It counts as `times`
    questions."""

    step: Step
    times: int = 1


class Part:
    """The parts of one engine that the checks of a view are asked about.

    A part is closed and true: what it has of the engine is all that these checks look at. Where
    this is not known, nothing is asked."""

    view: ClassVar[Views]

    def __init__(self, seen: "EngineNotes") -> None:
        self.seen = seen
        self.scheduler: Any = seen.scheduler
        self.cfg = seen.cfg
        self.slices = seen.slices

    def hidden(self) -> Mapping[Need, str]:
        """Return the facts of the view that this engine does not have or show, with the reasons."""
        return {}

    def questions(self) -> Iterator[Question]:
        """Return what is asked after an event."""
        raise NotImplementedError

    def found(self, finding: Finding) -> None:
        """React to a check that does not hold."""

    def question(
        self,
        after: Engine | None = None,
        *,
        before: Engine | None = None,
        event: Event | None = None,
        effects: Effects | None = None,
        transfers: tuple[Transfer, ...] = (),
        times: int = 1,
    ) -> Question:
        """Make a question about a step with these parts of the engine."""
        nothing = Engine(self.cfg.name, (), ())
        step = Step(
            State((before or nothing,)),
            event or Schedule(self.cfg.name, ()),
            effects or Effects(),
            State((after or nothing,), transfers),
        )
        return Question(step, times)
