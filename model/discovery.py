"""Discovery: the modules of a folder, whose decorators fill a registry. A new fault, check or known
finding is found without a list of modules."""

import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

from kvproof.model.errors import UsageError
from kvproof.model.raised import last_place

OF_THE_AUTHOR = (AttributeError, ImportError, NameError, SyntaxError, TypeError, ValueError)
"""The exceptions that a file with a mistake of its author raises when it is imported."""


def modules(package: ModuleType) -> tuple[ModuleType, ...]:
    """Import each module of a package, in the order of their names: what their decorators register
    is registered then. Raises UsageError, with the file and the line, where a module is not right.
    """
    names = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
    return tuple(_imported(package, name) for name in names)


def _imported(package: ModuleType, name: str) -> ModuleType:
    file = Path(package.__path__[0]) / f"{name}.py"
    try:
        return importlib.import_module(f"{package.__name__}.{name}")
    except UsageError as error:
        raise UsageError(f"{_place(file, error).rstrip(',')}: {error}") from error
    except OF_THE_AUTHOR as error:
        why = f"{type(error).__name__}: {error}".rstrip(".")
        raise UsageError(
            f"{_place(file, error)} cannot be imported ({why}). Use another file of its folder as "
            "an example."
        ) from error


def _place(file: Path, error: BaseException) -> str:
    """The file that is not right, and the line where that is known. A SyntaxError names it."""
    at = last_place(error, lambda name: name == str(file))
    return f"{file}, line {at.lineno}," if at is not None else str(file)
