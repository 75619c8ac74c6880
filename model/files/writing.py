"""Writes files that appear whole under their final name, or not at all.

A file gets its name after its content is on the disk. Until then it has a name in the same folder
that nobody has, which ends with `.part`. So a process that is killed leaves no part of a file under
its final name. A part that is left is removed when this folder is written to a day later.
"""

import errno
import functools
import itertools
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kvproof.model.errors import UsageError
from kvproof.model.files.reading import shown

STALE_S = 24 * 3600
"""The age from which on a part is one that a killed process has left, in seconds."""


def check_new(path: Path) -> Path:
    """Check that a new file can be written at a path later, and return the path; call this before
    long work. Raises UsageError where the file exists, or where no file can be made in its
    folder."""
    with errors(path):
        try:
            path.lstat()
        except FileNotFoundError:
            tempfile.TemporaryFile(dir=path.parent).close()
            return path
        raise FileExistsError


def write_new(path: Path, content: str | bytes) -> Path:
    """Write a new file, text as UTF-8, and return its path. Raises UsageError where it exists or
    cannot be written."""
    data = content.encode() if isinstance(content, str) else content
    with errors(path):
        _make(path, (data,))
    return path


def write_fresh(folder: Path, stem: str, suffix: str, content: str) -> Path:
    """Write a new file in an existing folder, and return its path: `stem` with the suffix, or with
    the first number from 2 on that no file has. If one of the files tried before has this content
    already, that file is returned instead. Raises UsageError where it cannot be written."""
    data = content.encode()
    for number in itertools.count(1):
        path = folder / f"{stem}{'' if number == 1 else f'-{number}'}{suffix}"
        with errors(path), suppress(FileExistsError):
            if _holds(path, data):
                break
            if not os.path.lexists(path):
                _make(path, (data,))
                break
    return path


def _holds(path: Path, data: bytes) -> bool:
    """Whether this is a regular file, no link, with this content."""
    with suppress(OSError):
        about = path.lstat()
        return (
            stat.S_ISREG(about.st_mode) and about.st_size == len(data) and path.read_bytes() == data
        )
    return False


def replace(path: Path, *data: bytes) -> None:
    """Write a file, and replace an earlier version of it. Raises UsageError where it cannot be
    written; then the earlier version stays."""
    final = Path(os.path.realpath(path))  # a link to a file stays
    with errors(path), _whole(final.parent, data) as part:
        os.replace(part, final)


def keep(path: Path, data: bytes) -> int:
    """Write a file, and replace an earlier version of it, without waiting for the disk: it outlives
    the process, but not the machine. Returns a descriptor, for writing in place. Raises UsageError
    where it cannot be written; then the earlier version stays."""
    part = unused(path.parent)
    with errors(path):
        file = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        try:
            if os.write(file, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.replace(part, path)
        except BaseException:
            os.close(file)
            with suppress(OSError):
                os.unlink(part)
            raise
    return file


def append(path: Path, content: str) -> None:
    """Append text to a file that belongs to another program, or make it. Raises UsageError where it
    cannot be written."""
    with errors(path), open(path, "ab") as file:
        file.write(content.encode())


@contextmanager
def errors(path: Path) -> Iterator[None]:
    """Raise each error of writing this file as a UsageError."""
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


def unused(folder: Path) -> Path:
    """A file name that no file in the folder has."""
    _remove_stale(folder)
    return folder / f".kvproof-{secrets.token_hex(8)}.part"


@functools.cache
def _remove_stale(folder: Path) -> None:
    """Remove the parts that killed processes have left in a folder, once in each process."""
    for part in folder.glob(".kvproof-*.part"):
        with suppress(OSError):  # another process removes it too
            if time.time() - part.lstat().st_mtime > STALE_S:
                shutil.rmtree(part) if part.is_dir() else part.unlink()


def _make(path: Path, data: tuple[bytes, ...]) -> None:
    """Make a new file. Raises FileExistsError where it exists, OSError where it cannot be made."""
    with _whole(path.parent, data) as part:
        try:
            os.link(part, path)  # unlike a rename, this never replaces a file
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            open(path, "xb").close()
            os.replace(part, path)


@contextmanager
def _whole(folder: Path, data: tuple[bytes, ...]) -> Iterator[Path]:
    """Make a file with this content, on the disk, under a name that no other file has. The file is
    removed at the end if it still has that name."""
    part = unused(folder)
    try:
        with open(part, "xb") as file:
            for each in data:
                file.write(each)
            file.flush()
            os.fsync(file.fileno())
        yield part
    finally:
        with suppress(OSError):
            part.unlink()
