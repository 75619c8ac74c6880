"""Makes folders, and checks before long work that a folder can be made and written to. A process
that uses a removable folder holds a lock on it."""

import fcntl
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kvproof.model.errors import UsageError
from kvproof.model.files.reading import shown
from kvproof.model.files.writing import unused


def check_folder(folder: Path) -> Path:
    """Check that a folder exists or can be made, and return it; a folder made for the check is
    removed again. Raises UsageError where it cannot be made or written to."""
    made: list[Path] = []
    with folder_errors(folder):
        try:
            for part in (*reversed(folder.parents), folder):
                if not part.exists():
                    part.mkdir()
                    made.append(part)
            tempfile.TemporaryFile(dir=folder).close()
        finally:
            for part in reversed(made):
                with suppress(OSError):  # another process uses it already
                    part.rmdir()
    return folder


def made_folder(folder: Path) -> Path:
    """Make a folder where it is missing, and return it. Raises UsageError where it cannot be
    made."""
    with folder_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def check_empty(folder: Path) -> Path:
    """Check that a folder, for files to be written later, is empty or can be made, and return it.
    Raises UsageError where it is not empty or cannot be written to."""
    check_folder(folder)
    with folder_errors(folder):
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(
                f"The folder {shown(folder)} is not empty, and nothing in it is overwritten. "
                "Use the name of a new folder."
            )
    return folder


def appear(part: Path, folder: Path) -> None:
    """Give a complete folder its final name. Where another process was faster, its folder stays.
    Raises UsageError where neither is possible."""
    with folder_errors(folder):
        try:
            part.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise


@contextmanager
def part_of(folder: Path) -> Iterator[Path]:
    """A new folder beside the final one, which gets its name when it is complete. It is removed if
    it still has its own name at the end. Raises UsageError where it cannot be made."""
    with folder_errors(folder):
        part = unused(folder.parent)
        part.mkdir()
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


_HELD: list[int] = []
"""The folders that this process holds, up to its end."""


def hold(folder: Path) -> bool:
    """Keep a folder from being removed as long as this process runs, and record that it was used
    now. Returns whether it exists: another process may have removed it."""
    try:
        place = os.open(folder, os.O_RDONLY)
        fcntl.flock(place, fcntl.LOCK_SH)
        there = os.fstat(place).st_ino == folder.stat().st_ino
    except FileNotFoundError:
        return False
    _HELD.append(place)
    with suppress(OSError):  # a folder that others own is used all the same
        os.utime(folder)
    return there


def remove_unused(folder: Path) -> bool:
    """Remove a folder, unless a process holds it or it cannot be removed. Returns whether it is
    gone."""
    with suppress(OSError):
        place = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            gone = unused(folder.parent)
            folder.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
        finally:
            os.close(place)
    return not folder.exists()


def size_of(folder: Path) -> int:
    """The size of all files in a folder, in bytes; 0 where the folder is missing. Links are not
    counted."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                path = os.path.join(root, name)
                total += 0 if os.path.islink(path) else os.lstat(path).st_size
    return total


@contextmanager
def folder_errors(folder: Path) -> Iterator[None]:
    """Raise each error of making this folder as a UsageError."""
    try:
        yield
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            f"The folder {shown(folder)} cannot be made or written to ({why}). "
            "Use a folder that you may write to."
        ) from error


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive to a folder. Nothing is written outside the folder. Raises UsageError
    where the archive is damaged, or where a file cannot be written."""
    with folder_errors(folder):
        try:
            with tarfile.open(archive) as opened:
                # Python 3.11.3 and earlier have no filter.
                opened.extraction_filter = getattr(tarfile, "data_filter", None)
                opened.extractall(folder)
        except tarfile.TarError as error:
            raise UsageError(
                f"The archive {shown(archive)} cannot be unpacked ({error}). Use a whole archive."
            ) from error
