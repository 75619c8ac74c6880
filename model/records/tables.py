"""The block tables of the requests of a record, event by event."""

from collections.abc import Iterator
from typing import NamedTuple

from kvproof.model.events import Lists
from kvproof.model.records.record import Happened, Record


class After(NamedTuple):
    """An event, and the block tables after it. A request whose first blocks were taken before the
    record begins is not in `tables`."""

    happened: Happened
    tables: dict[str, Lists]


def followed(record: Record) -> Iterator[After]:
    """Each event of a record with the tables after it."""
    groups = len(record.header.engine.groups)
    empty: Lists = ((),) * groups
    tables: dict[str, Lists] = {}
    lost: set[str] = set()
    for happened in record.events:
        tables = dict(tables)
        for change in happened.event.tables:
            name, group = change.request, change.group
            table = tables.get(name, empty)
            if change.at > len(table[group]):
                lost.add(name)
            changed = (*table[group][: change.at], *change.blocks)
            tables[name] = (*table[:group], changed, *table[group + 1 :])
            if not any(tables[name]):
                del tables[name]
                lost.discard(name)
        yield After(happened, {name: held for name, held in tables.items() if name not in lost})
