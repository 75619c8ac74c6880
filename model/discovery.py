"""Discovery: the declarations in the files of a folder. A new fault or invariant is a new file and
nothing else."""

import importlib
import pkgutil
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from kvproof.model.errors import UsageError

OF_THE_AUTHOR = (AttributeError, NameError, SyntaxError, TypeError, ValueError)
"""What a file that is not right raises when it is imported."""


def modules(room: ModuleType) -> Iterator[ModuleType]:
    """Import each module of a package, in the order of their names. Raises UsageError with the file
    and the line where a module is not right."""
    for name in sorted(found.name for found in pkgutil.iter_modules(room.__path__)):
        try:
            yield importlib.import_module(f"{room.__name__}.{name}")
        except OF_THE_AUTHOR as error:
            file = Path(room.__path__[0]) / f"{name}.py"
            why = f"{type(error).__name__}: {error}".rstrip(".")
            raise UsageError(
                f"{file}{_line(file, error)} cannot be imported ({why}). Use another file of its "
                "folder as an example."
            ) from error


def _line(file: Path, error: BaseException) -> str:
    """The line of a file that raised this, in words. Empty where another file did."""
    if isinstance(error, SyntaxError):  # its message names the line
        return ""
    lines = [
        each.lineno
        for each in traceback.extract_tb(error.__traceback__)
        if Path(each.filename) == file.resolve() or Path(each.filename) == file
    ]
    return f", line {lines[-1]}," if lines else ""


def declared(room: ModuleType, name: str) -> Iterator[Any]:
    """The value of this name in each module of a package, in the order of the modules' names. A
    module without this name is skipped. Raises UsageError where a module is not right, or where
    what it declares has another name than the file."""
    for found in modules(room):
        module = found.__name__.rpartition(".")[2]
        value = getattr(found, name, None)
        if value is None:
            continue
        own = getattr(value, "id", None) or getattr(value, "name", module)
        if own != module:
            raise UsageError(
                f"The file {module}.py declares a {name} named {own}. Use one name for both."
            )
        yield value


def import_all(folder: ModuleType) -> None:
    """Import each module of a package, in the order of their names. So whatever its decorators
    register is registered. Raises UsageError, with the file and the line, where a module is not
    right."""
    for module in sorted(found.name for found in pkgutil.iter_modules(folder.__path__)):
        file = Path(folder.__path__[0]) / f"{module}.py"
        try:
            importlib.import_module(f"{folder.__name__}.{module}")
        except UsageError as error:
            raise UsageError(f"{_place(file, error)}: {error}") from error
        except (*OF_THE_AUTHOR, ImportError) as error:
            why = f"{type(error).__name__}: {error}".rstrip(".")
            raise UsageError(
                f"{_place(file, error)}: cannot be imported ({why}). Use another file of its "
                "folder as an example."
            ) from error


def _place(file: Path, error: BaseException) -> str:
    """The file that is not right, with the line where that is known."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}"
    lines = [
        at.lineno for at in traceback.extract_tb(error.__traceback__) if at.filename == str(file)
    ]
    return f"{file}, line {lines[-1]}" if lines else str(file)
