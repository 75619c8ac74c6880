"""When a run is over, and who is still waiting."""

from kvproof.model.state import PREEMPTED, WAITING, Request, State


def unfinished(state: State) -> list[tuple[str, Request]]:
    """Requests that are still held by an engine, with the engine's name. One that waits for a
    transfer whose end will never be reported is excused: that is the environment's doing. So are
    those that wait for blocks where it keeps some."""
    lost = {t.request for t in state.transfers if t.phase == "lost"}
    short = [e for e in state.engines if any(r.id in lost and r.tables for r in e.requests)]
    idle = (WAITING, PREEMPTED)
    starved = {r.id for e in short for r in e.requests if r.status in idle and not r.tables}
    excused = lost | starved
    return [(e.name, r) for e in state.engines for r in e.requests if r.id not in excused]


def over(state: State) -> bool:
    """Whether nothing is left to be done for what was submitted."""
    pending = any(t.phase in ("reading", "telling") for t in state.transfers)
    flying = any(engine.steps for engine in state.engines)
    return not pending and not flying and not unfinished(state)


def waiting(state: State) -> str:
    """Who is still waiting, in words."""
    return ", ".join(f"{r.id} on {engine} ({r.status})" for engine, r in unfinished(state))
