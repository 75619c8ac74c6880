"""What of vLLM a run reaches, by the lines that it executes in the changed files, and in which of
its steps.

The lines are recorded by `coverage` with a trace function, with which a run takes about twice as
long: `sys.monitoring` does not say in which step a line was executed.
"""

import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import coverage

from kvproof.gate.difference.result import Near
from kvproof.gate.source.outcomes import had
from kvproof.gate.source.statements import RUNS, Places
from kvproof.model.errors import UsageError

CORE = "COVERAGE_CORE"
"""The variable of the environment with which `coverage` chooses how lines are recorded."""

SPECIAL = re.compile(r"[][*?+{}]")
"""The characters of a path that `coverage` takes for a pattern, or refuses."""


class Reached:
    """What runs have reached so far: keys as in `Places`. `near` has the steps in which each
    changed function executed what is changed in it, by the key of the function."""

    def __init__(self, tracer: coverage.Coverage) -> None:
        self.keys: frozenset[str] = frozenset()
        self.near: dict[str, Near] = {}
        self.steps: list[frozenset[str]] = []
        self._tracer = tracer

    def note(self, abstract_steps: Iterable[str]) -> None:
        """What was executed since the last note is one step, with these abstract steps."""
        self.steps.append(frozenset(abstract_steps))
        self._tracer.switch_context(str(len(self.steps)))

    def end(self, files: Mapping[str, str], places: Places) -> None:
        """All runs are over."""
        data, by_step = self._tracer.get_data(), dict[str, set[str]]()
        for name in data.measured_files():
            of_file = places.get(files.get(os.path.realpath(name), ""), {})
            taken = {*(data.arcs(name) or ())}
            for line, steps in data.contexts_by_lineno(name).items():
                keys = [key for key in of_file.get(line, ()) if had(key, line, taken)]
                for step in steps:
                    by_step.setdefault(step, set()).update(keys)
        self.keys = frozenset().union(*by_step.values())
        seen: dict[str, Counter[str]] = {}
        for number, abstract_steps in enumerate(self.steps):
            for key in by_step.get(str(number or ""), ()):
                if key.endswith(RUNS):
                    seen.setdefault(key, Counter()).update(("", *abstract_steps))
        self.near = {
            key.removesuffix(RUNS): Near(counts.pop(""), dict(counts))
            for key, counts in seen.items()
        }


@contextmanager
def reached(package: Path, places: Places) -> Iterator[Reached]:
    """Record what of these places is reached in the block. `package` is the folder. What was
    reached is known after the block. Raises UsageError where a debugger is at work."""
    files = {os.path.realpath(package / file): file for file in places}
    patterns = [SPECIAL.sub("?", name) for name in files]
    tracer = coverage.Coverage(data_file=None, config_file=False, include=patterns, branch=True)
    found = Reached(tracer)
    if not files:
        yield found
        return
    if sys.gettrace() is not None:
        raise UsageError(
            "A trace function is at work, so the lines that a run executes cannot be recorded. "
            "Use a run without a debugger."
        )
    os.environ.setdefault(CORE, "ctrace")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing was recorded
        tracer.start()
        try:
            yield found
        finally:
            tracer.stop()
            found.end(files, places)
