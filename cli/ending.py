"""The end of the program: one exit code and one message for each way to end."""

import importlib
import os
import sys

from kvproof.cli import live_line, streams
from kvproof.model import interruption

DEFECT = 3


def program(module: str) -> int:
    """Run the function `main` of a module, between the start and the end of the process. Returns
    the exit code."""
    try:
        streams.fill()
        interruption.install()
        streams.prepare()
        sys.unraisablehook = _unraisable
        # Hypothesis would keep its caches in the working folder; without them it works as well.
        os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", os.devnull)
        live_line.show("kvproof: starting")
        code = _run(module)
    except streams.OutputLost as lost:
        code = _report(str(lost), streams.EXIT_CODE)
    except BaseException as error:  # an import may turn a KeyboardInterrupt into any other error
        if not interruption.requested() and not isinstance(error, KeyboardInterrupt):
            raise
        interruption.caught()
        code = _report("Interrupted.", DEFECT)
    interruption.ignore()
    if interruption.requested():  # threads that have not ended do not keep the process
        sys.stderr.flush()
        os._exit(interruption.exit_code(code))
    return code


def _unraisable(about: "sys.UnraisableHookArgs", /) -> None:
    """An error where none can be raised, as in a finalizer. A KeyboardInterrupt that is lost there
    is raised again."""
    if not (interruption.requested() and isinstance(about.exc_value, KeyboardInterrupt)):
        sys.__unraisablehook__(about)


def _run(module: str) -> int:
    try:
        code = _ended(module)
        sys.stdout.flush()
    finally:
        live_line.clear()
    return code


def _ended(module: str) -> int:
    try:
        return int(importlib.import_module(module).main())
    except SystemExit as end:  # argparse, after --help and --version
        return end.code if isinstance(end.code, int) else 0
    except Exception:
        if interruption.requested():
            raise
        live_line.clear()
        sys.excepthook(*sys.exc_info())
        return _report("This is a defect of kvproof, and there is no verdict.", DEFECT)


def _report(line: str, code: int) -> int:
    """Print a line on standard error. Returns the code."""
    live_line.clear()
    print(line, file=sys.stderr)
    return code
