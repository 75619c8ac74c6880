"""All known deviations. A new one is a file in this folder that has a `DEVIATION`."""

import importlib
import pkgutil
from collections.abc import Iterator

import kvproof.live.deviations as room
from kvproof.model.deviation import Deviation


def _found() -> Iterator[Deviation]:
    for module in sorted(m.name for m in pkgutil.iter_modules(room.__path__)):
        found = getattr(importlib.import_module(f"{room.__name__}.{module}"), "DEVIATION", None)
        if found is not None:
            yield found


KNOWN: dict[str, Deviation] = {deviation.name: deviation for deviation in _found()}
"""The known deviations by name."""
