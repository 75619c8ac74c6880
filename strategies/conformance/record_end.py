"""Compares the state of a machine that followed a record with the state of the watched engine.

Which free block is taken is a choice that the spec leaves open. So only the length of a block table
and the places of its null blocks are compared.
"""

from collections.abc import Iterator

from kvproof.model.records.record import Record
from kvproof.model.state import NULL, Lists, State
from kvproof.strategies.conformance.replay import ABSENT, Difference


def end_differs(state: State, record: Record) -> Difference | None:
    """The first difference between the requests at the end of a record and those of a machine."""
    step = len(record.events)
    for field, was, now in _differences(state, record):
        if was != now:
            return Difference(step, "the end", field, was, now)
    return None


def _differences(state: State, record: Record) -> Iterator[tuple[str, object, object]]:
    [engine] = state.engines
    held = {each.request: each for each in record.state.requests}
    names = [each.id for each in engine.requests if any(each.tables)]
    for name in dict.fromkeys((*held, *names)):
        ours, theirs = engine.find(name), held.get(name)
        if ours is None or theirs is None or not any(ours.tables):
            yield f"request {name}", theirs and "has blocks", ABSENT
            return
        yield f"computed tokens of {name}", theirs.computed_tokens, ours.computed
        yield f"blocks of {name}", _filled(theirs.tables), _filled(ours.tables)


def _filled(tables: Lists) -> tuple[str, ...]:
    """A table as a text: one character for each column, which says whether it has a block."""
    return tuple("".join("-" if block == NULL else "x" for block in table) for table in tables)
