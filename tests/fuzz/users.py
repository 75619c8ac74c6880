"""Other users than root, for whom permissions count. Where this is not root, they count anyway."""

import ctypes
import os
from pathlib import Path

NAMELESS = 54321
"""The number of a user without a name and without a home."""

READ_SEARCH = 1 << 2
"""The capability to read all files. A user without a name needs it, because Python and this tree
may lie in the folder of another user."""

KEEP_CAPABILITIES = 8
VERSION = 0x20080522


def give(root: Path) -> None:
    """Give a folder, and all below it, to the user without a name."""
    for folder, names, files in os.walk(root):
        for path in (folder, *(os.path.join(folder, name) for name in (*names, *files))):
            os.lchown(path, NAMELESS, NAMELESS)


def bound() -> None:
    """Make this process one that permissions bind."""
    if os.getuid() == 0:
        _set_capabilities(0)


def nameless() -> None:
    """Make this process one of the user without a name, who may read and not write all."""
    if os.getuid() == 0:
        ctypes.CDLL(None).prctl(KEEP_CAPABILITIES, 1, 0, 0, 0)
        os.setgroups([])
        os.setgid(NAMELESS)
        os.setuid(NAMELESS)
        _set_capabilities(READ_SEARCH)


def _set_capabilities(mask: int) -> None:
    """Keep these capabilities only."""
    head = (ctypes.c_uint32 * 2)(VERSION, 0)
    data = (ctypes.c_uint32 * 6)(mask, mask, 0, 0, 0, 0)
    if ctypes.CDLL(None, use_errno=True).capset(head, data) != 0:
        raise OSError(ctypes.get_errno(), "capset")
