"""Discovery: the declarations in the files of a folder. A new fault or invariant is a new file and
nothing else."""

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any


def declared(room: ModuleType, name: str) -> Iterator[Any]:
    """The value of this name in each module of a package, in the order of the modules' names. A
    module without this name is skipped."""
    for module in sorted(found.name for found in pkgutil.iter_modules(room.__path__)):
        value = getattr(importlib.import_module(f"{room.__name__}.{module}"), name, None)
        if value is not None:
            yield value
