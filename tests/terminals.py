"""What programs write on a terminal of the tests."""

import os


def all_of(terminal: int) -> str:
    """All that the program wrote, to its end. One read may have a part of it only."""
    shown = b""
    while part := _read(terminal):
        shown += part
    return shown.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the program has ended
        return b""
