"""The files of a package, whatever is linked where."""

import os
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from kvproof.model.errors import UsageError
from kvproof.model.files.reading import shown

COMPILED = (*EXTENSION_SUFFIXES, ".so")
"""The ends of the names of compiled parts."""

LEFT_OUT = ("__pycache__", ".git")


def files(folder: Path) -> Iterator[tuple[str, Path]]:
    """The regular files in a folder: path relative to the folder, and real path, in the order of
    their names. Linked folders are followed, unless they lead back to a folder above. Raises
    UsageError where a folder cannot be read."""
    yield from _files(os.path.realpath(folder), "", ())


def _files(folder: str, relative: str, above: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    if folder in above:
        return
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        raise UsageError(
            f"The folder {shown(folder)} cannot be read ({error.strerror}). "
            "Use a vLLM whose folders you may read."
        ) from error
    for entry in entries:
        if entry.name in LEFT_OUT or entry.name.endswith(".pyc"):
            continue
        real = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
        if entry.is_dir():
            yield from _files(real, f"{relative}{entry.name}/", (*above, folder))
        elif entry.is_file():
            yield f"{relative}{entry.name}", Path(real)


def compiled(folder: Path) -> dict[str, Path]:
    """The compiled parts in a folder, by relative path."""
    return {name: path for name, path in files(folder) if name.endswith(COMPILED)}
