"""All events that the environment may send next."""

from collections.abc import Iterator

from kvproof.model import config
from kvproof.model.environment import acceptance, arrivals, disturbances, pulls, pushes, stores
from kvproof.model.events import Complete, Event, Schedule
from kvproof.model.state import ABORTED, LOADING, MISQUEUED, PAUSED, SENDING, Engine, State

IDLE = (LOADING, SENDING, ABORTED, PAUSED, MISQUEUED)
"""Statuses of requests that no step can schedule."""


def is_settled(state: State) -> bool:
    """Whether no engine is dead, and none without overlapping steps waits for the output of a
    step."""
    return all(e.step is None and not e.dead for e in state.engines)


def stimuli(cluster: config.Cluster, state: State) -> Iterator[Event]:
    """The events that the environment may send next. The machine makes the scheduler's choices.

    Where steps do not overlap, a step's output arrives before any other event. Events of the other
    engine commute with it, so one order represents all orders.
    """
    for engine in state.engines:
        if engine.step is not None and not engine.dead:
            yield from _outputs(cluster, state, engine)
            return
    if any(e.dead for e in state.engines):
        return
    for engine in state.engines:
        if engine.steps:
            yield from _outputs(cluster, state, engine)
    yield from arrivals.stimuli(cluster, state)
    for engine in state.engines:
        room = len(engine.steps) < cluster.engine(engine.name).steps_in_flight
        if room and any(r.status not in IDLE for r in engine.requests):
            yield Schedule(engine.name)
    moves = pushes if cluster.pushes else pulls
    yield from moves.stimuli(cluster, state)
    yield from disturbances.stimuli(cluster, state)


def _outputs(cluster: config.Cluster, state: State, engine: Engine) -> Iterator[Event]:
    """The outputs that the oldest step in flight may have."""
    for accepted in acceptance.verdicts(cluster, engine):
        yield Complete(engine.name, accepted)
    for failed in stores.failing(cluster, state, engine):
        yield Complete(engine.name, failed=failed)
