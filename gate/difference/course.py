"""How a machine took a run: to which end, and how the requests stood at one place of it."""

from msgspec import Struct

from kvproof.model.state import State


class Stands(Struct, frozen=True, forbid_unknown_fields=True):
    """A request on an engine: its status, and whether it holds blocks."""

    engine: str
    request: str
    status: str
    holds: bool


class Course(Struct, frozen=True, forbid_unknown_fields=True):
    """How a machine took a run. `stands` are the requests before the event at the place. `dead`
    says how an engine died, else it is empty; `ended` that all requests came to their end. So many
    of the events were not possible (`skipped`). Of a plan, `judged` are the checks of the contract
    that had something to judge."""

    stands: tuple[Stands, ...] = ()
    dead: str = ""
    ended: bool = False
    skipped: int = 0
    judged: tuple[str, ...] = ()


NOT_TAKEN = Course()


def standing(state: State) -> tuple[Stands, ...]:
    """All requests of a state."""
    return tuple(
        Stands(engine.name, each.id, each.status, any(each.tables))
        for engine in state.engines
        for each in engine.requests
    )
