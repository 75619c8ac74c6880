"""What of vLLM a run reaches, by the lines that it executes in the changed files.

The lines are recorded by `coverage`: on Python 3.12 and later with `sys.monitoring`, which costs
next to nothing, before with a trace function, with which a run takes about twice as long.
"""

import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import coverage

from kvproof.gate.source.statements import Places
from kvproof.model.errors import UsageError

CORE = "COVERAGE_CORE"
"""The variable of the environment with which `coverage` chooses how lines are recorded."""

SPECIAL = re.compile(r"[][*?+{}]")
"""The characters of a path that `coverage` takes for a pattern, or refuses."""


class Reached:
    """What runs have reached so far: keys as in `Places`."""

    def __init__(self) -> None:
        self.keys: frozenset[str] = frozenset()


@contextmanager
def reached(package: Path, places: Places) -> Iterator[Reached]:
    """Record what of these places is reached in the block. `package` is the folder. What was
    reached is known after the block. Raises UsageError where a debugger is at work."""
    found = Reached()
    files = {os.path.realpath(package / file): file for file in places}
    if not files:
        yield found
        return
    if sys.gettrace() is not None:
        raise UsageError(
            "A trace function is at work, so the lines that a run executes cannot be recorded. "
            "Use a run without a debugger."
        )
    if sys.version_info >= (3, 12):
        os.environ.setdefault(CORE, "sysmon")
    patterns = [SPECIAL.sub("?", name) for name in files]
    tracer = coverage.Coverage(data_file=None, config_file=False, include=patterns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing was recorded
        tracer.start()
        try:
            yield found
        finally:
            tracer.stop()
            found.keys = frozenset(_keys(tracer.get_data(), files, places))


def _keys(data: coverage.CoverageData, files: Mapping[str, str], places: Places) -> Iterator[str]:
    for name in data.measured_files():
        of_file = places.get(files.get(os.path.realpath(name), ""), {})
        for line in data.lines(name) or ():
            yield from of_file.get(line, ())
