"""All guards. A new one is a file in this folder that has a `GUARD`."""

import importlib
import pkgutil
from collections.abc import Iterator

import kvproof.model.spec as room
from kvproof.model.spec.guard import Guard


def _found() -> Iterator[Guard]:
    for module in sorted(m.name for m in pkgutil.iter_modules(room.__path__)):
        guard = getattr(importlib.import_module(f"{room.__name__}.{module}"), "GUARD", None)
        if guard is not None:
            yield guard


GUARDS: dict[str, Guard] = {guard.id: guard for guard in _found()}
