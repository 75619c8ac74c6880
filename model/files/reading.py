"""Reads a file that a user names: a regular file of a limited size, and every error as two
sentences."""

import os
import stat
from pathlib import Path

from kvproof.model.errors import UsageError

MIB = 1024 * 1024

SIZE_MAX_MIB = 64
"""The largest file that is read, unless its reader knows a better limit."""


def read_bytes(path: Path, what: str, size_max_mib: int = SIZE_MAX_MIB) -> bytes:
    """The content of a regular file; `what` names its kind in errors, such as "trace file".

    Raises UsageError where the file is missing, is a folder, a pipe or a device, is larger than the
    limit, or cannot be read.
    """
    try:
        # A pipe without a writer would wait forever without O_NONBLOCK.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _unread(path, what, _reason(error)) from error
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        os.close(descriptor)
        raise _unread(path, what, "it is not a regular file")
    with open(descriptor, "rb") as file:
        size_max = size_max_mib * MIB
        try:
            content = file.read(size_max + 1) if about.st_size <= size_max else None
        except OSError as error:
            raise _unread(path, what, _reason(error)) from error
    if content is None or len(content) > size_max:
        raise UsageError(
            f"The {what} {shown(path)} is larger than {size_max_mib} MiB. Use a smaller file."
        )
    return content


def read_text(path: Path, what: str, size_max_mib: int = SIZE_MAX_MIB) -> str:
    """The text of a regular UTF-8 file. Raises UsageError as `read_bytes`, and where the content is
    no UTF-8."""
    try:
        return read_bytes(path, what, size_max_mib).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"The {what} {shown(path)} is not UTF-8 text (byte {error.start}). Use a UTF-8 file."
        ) from error


def shown(path: Path | str) -> str:
    """A path as printable text, also where its name is not UTF-8 or has control characters. One
    that ends as a sentence does is quoted."""
    text = printable(os.fsencode(path).decode("utf-8", "backslashreplace"))
    return f"'{text}'" if text.endswith((".", "!", "?")) else text


def printable(text: str) -> str:
    """A text of a user on one line, without control characters."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _reason(error: OSError | ValueError) -> str:
    return str(getattr(error, "strerror", None) or error)


def _unread(path: Path, what: str, why: str) -> UsageError:
    return UsageError(
        f"The {what} {shown(path)} cannot be read ({why}). Use the path of a {what} that you may "
        "read."
    )
