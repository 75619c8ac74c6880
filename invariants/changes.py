"""What a step changed: engines and requests before and after the step."""

from collections.abc import Iterator
from typing import NamedTuple

from kvproof.model.events import Schedule
from kvproof.model.state import Engine, Request
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


def scheduled(step: Step) -> Engines | None:
    """The engine of a `Schedule` step; None if the step is another event or its engine died."""
    if not isinstance(step.event, Schedule):
        return None
    for before, after in zip(step.before.engines, step.after.engines, strict=True):
        if after.name == step.event.engine:
            return None if before.dead or after.dead else Engines(before, after)
    return None
