"""The start of the program.

Signal handlers and streams come first, and only then the imports of the rest, which take up to a
second. So Ctrl-C and a closed standard output are noticed from the beginning, and every end has one
exit code (see `ending`).
"""


def main() -> None:
    """Run the program `kvproof`, and end the process."""
    program("kvproof.cli.main")


def program(module: str) -> None:
    """Run the function `main` of a module as a program, and end the process."""
    try:
        from kvproof.cli import ending
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    ending.program(module)
