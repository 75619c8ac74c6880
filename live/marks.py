"""One number for all that can be seen of an engine after an event. Two engines that show the same
have the same number."""

from collections.abc import Iterable
from zlib import crc32


def mark(things: Iterable[object]) -> int:
    """The number for these things, which are plain data."""
    text = "\n".join(map(repr, things))
    return crc32(text.encode("utf-8", "backslashreplace"))
