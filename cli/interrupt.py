"""Interruptions: the one place that knows which signal asked this process to end."""

import signal

received: signal.Signals | None = None
"""The signal that asked this process to end; None if there was none."""


def exit_code(code: int) -> int:
    """The exit code of a command: 130 after SIGINT, 143 after SIGTERM, else `code`."""
    return code if received is None else 128 + received
