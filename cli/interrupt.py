"""The exit code of an interruption, which replaces that of a command."""

from kvproof.model import interruption

REASON = "interrupted"
"""The reason of an UNKNOWN verdict when the user stopped the command."""


def exit_code(code: int) -> int:
    """The exit code of a command: 130 after SIGINT, 143 after SIGTERM, else `code`."""
    return interruption.exit_code(code)
