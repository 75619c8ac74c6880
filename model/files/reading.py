"""Reads a file that a user names: a regular file of a limited size, and every error as two
sentences."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from kvproof.model.errors import UsageError

MIB = 1024 * 1024

SIZE_MAX_MIB = 64
"""The size of the largest file that is read, in MiB, unless its reader gives another limit."""

SHOWN_MAX = 300
"""The maximum number of characters of a path in a message."""


@contextmanager
def opened(path: Path, what: str, size_max_mib: int = SIZE_MAX_MIB) -> Iterator[BinaryIO]:
    """A regular file, open for reading; `what` names its kind in errors, such as "trace file".

    Raises UsageError where the file is missing, is a folder, a pipe or a device, is larger than the
    limit, or cannot be read.
    """
    try:
        # A pipe without a writer would wait forever without O_NONBLOCK.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            os.close(descriptor)
            raise _unread(path, what, "it is not a regular file")
        with open(descriptor, "rb") as file:
            if about.st_size > size_max_mib * MIB:
                raise _too_large(path, what, size_max_mib)
            yield file
    except UsageError:
        raise
    except (OSError, ValueError) as error:
        raise _unread(path, what, str(getattr(error, "strerror", None) or error)) from error


def read_bytes(path: Path, what: str, size_max_mib: int = SIZE_MAX_MIB) -> bytes:
    """The content of a regular file. Raises UsageError as `opened`."""
    with opened(path, what, size_max_mib) as file:
        # Python allocates all that a read may give, so it is asked for the size of the file.
        content = file.read(os.fstat(file.fileno()).st_size + 1)
        while more := file.read(MIB):  # the file grows, or its size is not known
            content += more
            if len(content) > size_max_mib * MIB:
                break
    if len(content) > size_max_mib * MIB:
        raise _too_large(path, what, size_max_mib)
    return content


def read_text(path: Path, what: str, size_max_mib: int = SIZE_MAX_MIB) -> str:
    """The text of a regular UTF-8 file. Raises UsageError as `opened`, and where the content is no
    UTF-8."""
    try:
        return read_bytes(path, what, size_max_mib).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"The {what} {shown(path)} is not UTF-8 text (byte {error.start}). Use a UTF-8 file."
        ) from error


def shown(path: Path | str) -> str:
    """A path as printable text of limited length, also where its name is not UTF-8 or has control
    characters. A path that ends like a sentence is quoted."""
    text = str(path)
    with suppress(UnicodeError):  # a character that the file system cannot have
        text = os.fsencode(text).decode("utf-8", "backslashreplace")
    text = printable(text)
    text = text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."
    return f"'{text}'" if text.endswith((".", "!", "?")) else text


def printable(text: str) -> str:
    """A text of a user on one line, without control characters."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _unread(path: Path, what: str, why: str) -> UsageError:
    return UsageError(
        f"The {what} {shown(path)} cannot be read ({why}). Use the path of a {what} that you may "
        "read."
    )


def _too_large(path: Path, what: str, size_max_mib: int) -> UsageError:
    return UsageError(
        f"The {what} {shown(path)} is larger than {size_max_mib} MiB. Use a smaller file."
    )
