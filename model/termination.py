"""When a run is over, and who is still waiting."""

from collections.abc import Iterator

from kvproof.model.events import TransferDone
from kvproof.model.phases import Phase, before
from kvproof.model.state import PREEMPTED, WAITING, Engine, Request, State

ENDING = before(TransferDone)
"""Phases of transfers that will end by themselves."""


def unfinished(state: State) -> list[tuple[str, Request]]:
    """Requests that are still held by an engine, with the engine's name. One that waits for a
    transfer whose end will never be reported is excused: that is the environment's doing. So is
    one that may be short of the blocks which such a one keeps, here or on the other engine."""
    excused = {t.request for t in state.transfers if t.phase == Phase.LOST}
    known: set[str] = set()
    while excused > known:
        known = set(excused)
        excused |= {name for engine in state.engines for name in _short(engine, known)}
    return [(e.name, r) for e in state.engines for r in e.requests if r.id not in excused]


def _short(engine: Engine, excused: set[str]) -> Iterator[str]:
    """Requests without blocks that may not fit beside those excused, to which blocks are promised
    up to their end. A token takes at most a block of each group."""
    stuck = [r for r in engine.requests if r.id in excused and r.tables]
    groups = max((len(r.tables) for r in stuck), default=0)
    promised = sum(len(r.tokens) for r in stuck)
    for request in engine.requests:
        idle = request.status in (WAITING, PREEMPTED) and not request.tables
        if idle and groups * (promised + len(request.tokens)) > len(engine.free):
            yield request.id


def over(state: State) -> bool:
    """Whether nothing is left to be done for what was submitted."""
    pending = any(t.phase in ENDING for t in state.transfers)
    flying = any(engine.steps for engine in state.engines)
    return not pending and not flying and not unfinished(state)


def waiting(state: State) -> str:
    """Who is still waiting, in words."""
    return ", ".join(f"{r.id} on {engine} ({r.status})" for engine, r in unfinished(state))
