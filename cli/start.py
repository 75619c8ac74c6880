"""The start and the end of the program.

Signal handlers come first, then the streams, and only then the imports of the rest, which take up
to a second: Ctrl-C and a closed standard output are noticed from the beginning. Every end has one
exit code: that of the command, 4 where its output could not be written, 141 where its reader has
gone, 130 and 143 after SIGINT and SIGTERM, and 3 after a defect of kvproof, whose traceback is no
verdict.

This module imports nothing, so that the first handlers are set before anything takes time.
"""


def main() -> None:
    """The program `kvproof`. It ends the process."""
    program("kvproof.cli.main")


def program(module: str) -> None:
    """Run the function `main` of a module as a program. It ends the process."""
    _first_handlers()
    try:
        from kvproof.cli import ending
    except BaseException as error:
        import posix

        posix.write(2, f"kvproof cannot be imported ({error!r:.300}).\n".encode())
        posix._exit(3)
    ending.program(module)


def _first_handlers() -> None:
    """Handlers for the time in which the real ones are imported: a few milliseconds, in which
    nothing can be lost."""
    import _signal  # type: ignore[import-not-found]  # quicker than signal
    import posix

    def handle(number: int, _frame: object) -> None:
        try:
            posix.write(2, b"Interrupted.\n")
        finally:
            posix._exit(128 + number)

    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
        if _signal.getsignal(number) is not _signal.SIG_IGN:
            _signal.signal(number, handle)
