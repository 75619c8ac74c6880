"""When a run is over, and which requests still wait."""

from collections.abc import Iterator

from kvproof.model.events import TransferDone
from kvproof.model.phases import Phase, before
from kvproof.model.state import PREEMPTED, WAITING, Engine, Request, State

ENDING = before(TransferDone)
"""Phases of transfers that end without another event of a user or scheduler."""


def unfinished(state: State) -> list[tuple[str, Request]]:
    """The requests that an engine still has, each with the engine's name. A request that waits for
    a lost transfer is excused, because the environment lost the report. A request is also excused
    where it may lack the blocks that an excused request keeps, on this or on the other engine."""
    excused = {t.request for t in state.transfers if t.phase == Phase.LOST}
    known: set[str] = set()
    while excused > known:
        known = set(excused)
        excused |= {name for engine in state.engines for name in _short(engine, known)}
    return [(e.name, r) for e in state.engines for r in e.requests if r.id not in excused]


def _short(engine: Engine, excused: set[str]) -> Iterator[str]:
    """Requests without blocks that may not fit beside the excused requests and the blocks reserved
    for these up to their end. A token takes at most one block of each group."""
    stuck = [r for r in engine.requests if r.id in excused and r.tables]
    groups = max((len(r.tables) for r in stuck), default=0)
    promised = sum(len(r.tokens) for r in stuck)
    for request in engine.requests:
        idle = request.status in (WAITING, PREEMPTED) and not request.tables
        if idle and groups * (promised + len(request.tokens)) > len(engine.free):
            yield request.id


def over(state: State) -> bool:
    """Whether all submitted requests are finished: no transfer and no step is in progress, and no
    request waits."""
    pending = any(t.phase in ENDING for t in state.transfers)
    flying = any(engine.steps for engine in state.engines)
    return not pending and not flying and not unfinished(state)
