"""Writes files that appear whole under their final name, or not at all.

A file is written under a name that nobody has, in the same folder, and then gets its final name.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kvproof.model.errors import UsageError
from kvproof.model.files.reading import shown


def check_new(path: Path) -> Path:
    """The path, for a file that is to be written later; call this before long work. Raises
    UsageError where the file exists, or where no file can be made in its folder."""
    with _errors(path):
        try:
            path.lstat()
        except FileNotFoundError:
            with _part(path, b""):
                return path
        raise FileExistsError


def write_new(path: Path, content: str | bytes) -> None:
    """Write a new file, text as UTF-8. Raises UsageError where it exists or cannot be written."""
    data = content.encode() if isinstance(content, str) else content
    with _errors(path), _part(path, data) as part:
        try:
            os.link(part, path)  # unlike a rename, this never replaces a file
        except PermissionError:  # a file system without hard links
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
            os.replace(part, path)


def replace(path: Path, data: bytes) -> None:
    """Write a file, and replace an earlier version of it. Raises UsageError where it cannot be
    written; then the earlier version stays."""
    with _errors(path), _part(path, data) as part:
        os.replace(part, path)


@contextmanager
def _part(path: Path, data: bytes) -> Iterator[str]:
    """A temporary file with these bytes, which are on the disk; it is removed if it is left."""
    descriptor, part = tempfile.mkstemp(prefix=".kvproof-", suffix=".part", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, 0o666 & ~_umask())
            os.fsync(descriptor)
        yield part
    finally:
        with suppress(FileNotFoundError):
            os.unlink(part)


def _umask() -> int:
    """The permissions that new files do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise UsageError(
            f"The file {shown(path)} exists and is not overwritten. Use the name of a new file."
        ) from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            f"The file {shown(path)} cannot be written ({why}). "
            "Use a file in a folder that you may write to."
        ) from error
