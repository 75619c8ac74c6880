"""The whole contract: each module, and everything in it or on its objects that the adapter uses.

An entry has its place (see `entry`), its purpose and its feature.
"""

from collections.abc import Iterator

from kvproof.live.contract import (
    table_core,
    table_engine,
    table_features,
    table_kit,
    table_transfers,
    table_watch,
)
from kvproof.live.contract.entry import Entry, Place
from kvproof.live.contract.features import FEATURES

_THINGS = (
    *table_core.ENTRIES,
    *table_features.ENTRIES,
    *table_transfers.ENTRIES,
    *table_kit.ENTRIES,
    *table_engine.ENTRIES,
    *table_watch.ENTRIES,
)


def _modules() -> Iterator[Entry]:
    """The modules that entries need, each with the first feature that needs it."""
    order = list(FEATURES)
    needed: dict[str, list[Entry]] = {}
    for entry in _THINGS:
        if len(entry.places) == 1 and entry.places[0].module:
            needed.setdefault(entry.places[0].module, []).append(entry)
    for module, inside in needed.items():
        first = min(inside, key=lambda entry: order.index(entry.feature))
        names = sorted({entry.places[0].names[0] for entry in inside})
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield Entry(first.feature, (Place(False, module, (), "", ""),), f"home of {names[0]}{more}")


TABLE: tuple[Entry, ...] = (*_modules(), *_THINGS)
"""Modules come first: if a module is missing, everything in it is missing too."""
