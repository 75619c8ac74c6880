"""What a step changed: engines and requests before and after the step."""

from collections.abc import Iterator
from typing import NamedTuple

from kvproof.model.events import Choice, Schedule
from kvproof.model.state import NULL, Engine, Request
from kvproof.model.step import Step


class Engines(NamedTuple):
    """One engine before and after a step."""

    before: Engine
    after: Engine


class Requests(NamedTuple):
    """One request of one engine; None if the engine does not have it."""

    name: str
    before: Request | None
    after: Request | None


def alive(step: Step) -> Iterator[Engines]:
    """The engine of the event and the engines that the step changed, as far as they are alive
    before and after the step. The check `engine_survives` judges the others."""
    for before, after in step.touched:
        if not before.dead and not after.dead:
            yield Engines(before, after)


def requests(engines: Engines) -> Iterator[Requests]:
    """The requests that the engine had before or after the step, each once."""
    names = [r.id for r in engines.before.requests]
    names += [r.id for r in engines.after.requests if r.id not in names]
    for name in names:
        yield Requests(name, engines.before.find(name), engines.after.find(name))


class Scheduled(NamedTuple):
    """A step of a scheduler: the event, its choices, and the engine before and after it. The `step`
    has all engines. An engine that died in a step has not ended it, and it is not judged."""

    step: Step
    event: Schedule
    before: Engine
    after: Engine

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The choices of the scheduler."""
        return self.event.chose or ()


def scheduled(step: Step) -> Scheduled | None:
    """A step of a scheduler. None if the step is another event, or if its engine died in it."""
    event = step.event
    if not isinstance(event, Schedule):
        return None
    after = step.after.engine(event.engine)
    return None if after.dead else Scheduled(step, event, step.before.engine(event.engine), after)


def choices(step: Step) -> tuple[Choice, ...]:
    """The choices of a scheduler step; none for any other event."""
    return (step.event.chose or ()) if isinstance(step.event, Schedule) else ()


def blocks_of(choice: Choice, what: str) -> list[int]:
    """The blocks of all groups that a choice hit, took or freed, without the null block."""
    lists = getattr(choice, what, ())
    return [block for blocks in lists for block in blocks if block != NULL]


def taken(step: Step, engine: str) -> set[int]:
    """The blocks of an engine that a step of it took from the free queue. One of them that is free
    again was freed in this step too."""
    if not isinstance(step.event, Schedule) or step.event.engine != engine:
        return set()
    return {block for choice in choices(step) for block in blocks_of(choice, "taken")}
