"""The last line of a test run: how many tests ran on live vLLM.

`python -m kvproof.cli.live_summary REPORT` reads the JUnit report of pytest and does not import
vLLM. If KVPROOF_REQUIRE_LIVE is set, the exit code is 3 unless enough live tests passed.
"""

if __name__ == "__main__":  # before the imports, during which a signal may come
    import sys

    from kvproof.cli import start

    start.program("kvproof.cli.live_summary")

import argparse
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from kvproof.live import availability
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import read_bytes, shown
from kvproof.reports.screen import say

REQUIRED = 20
"""Minimum number of live tests that must pass if live vLLM is required. None may be skipped."""

LIVE_FILE = re.compile(r"(?:^|[._/])live(?:[._]|$)")
"""Tests of live vLLM are in files with the word `live` in their names."""


REPORT_MAX_MIB = 64

ROOTS = ("testsuites", "testsuite")
"""The outermost element of a JUnit report."""

DEPTH_MAX = 100
"""The deepest nesting of elements. pytest writes four levels."""


class Ran(NamedTuple):
    """The live tests of a report by result."""

    passed: int
    failed: int
    skipped: int


def ran(report: Path) -> Ran:
    """Count the live tests of a JUnit report. An expected failure is not counted.

    Raises UsageError if the report is missing or is not a JUnit report.
    """
    cases = _Cases()
    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = cases.begin, cases.end
    parser.StartDoctypeDeclHandler = _refuse_doctype
    content = read_bytes(report, "JUnit report", REPORT_MAX_MIB)
    try:
        parser.Parse(content, True)
    except (expat.ExpatError, ValueError, LookupError) as error:  # or an unknown encoding
        raise UsageError(
            f"The report {shown(report)} cannot be read ({error}). "
            "Use pytest --junitxml=FILE to make one."
        ) from error
    return Ran(*(cases.outcomes.count(name) for name in Ran._fields))


def _refuse_doctype(*_: object) -> None:
    # Its entities could make gigabytes of a small file. pytest writes none.
    raise expat.ExpatError("it has a document type")


class _Cases:
    """The outcomes of the live tests, as their elements begin. No tree is built."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []
        self.live = False
        self.depth = 0

    def begin(self, name: str, attributes: dict[str, str]) -> None:
        """An element begins. Raises ExpatError where it is nested too deeply."""
        self.depth += 1
        if self.depth == 1 and name not in ROOTS:
            raise expat.ExpatError(f"it is no JUnit report, but {name}")
        if self.depth > DEPTH_MAX:  # the parser keeps memory for each element that is open
            raise expat.ExpatError(f"its elements are nested more than {DEPTH_MAX} deep")
        if name == "testcase":
            # A file that is skipped completely has its name in `name`, and no class name.
            file = attributes.get("classname") or attributes.get("name") or ""
            self.live = LIVE_FILE.search(file) is not None
            if self.live:
                self.outcomes.append("passed")
        elif name in ("failure", "error") and self.live:
            self.outcomes[-1] = "failed"
        elif name == "skipped" and self.live and self.outcomes[-1] == "passed":
            expected = attributes.get("type") == "pytest.xfail"
            self.outcomes[-1] = "expected" if expected else "skipped"

    def end(self, _name: str) -> None:
        """An element ends."""
        self.depth -= 1


def summary(report: Path) -> tuple[str, bool]:
    """The line to print, and whether enough live tests passed and none was skipped."""
    try:
        version = availability.installed()
    except UsageError as error:
        missing = importlib.util.find_spec("vllm") is None
        return f"live: not run ({'make live installs it' if missing else error})", False
    count = ran(report)
    if not any(count):
        return f"live: not run (vLLM {version} is installed, but no live test was selected)", False
    line = f"live: {count.passed} tests passed on vLLM {version}"
    if count.failed:
        line += f", {count.failed} failed"
    if count.skipped:
        line += f", {count.skipped} skipped"
    return line, count.passed >= REQUIRED and not count.skipped


def main(argv: Sequence[str] | None = None) -> int:
    """Print the line. Returns 0, 2 for a report that cannot be read, 3 if too few live tests
    ran."""
    parser = argparse.ArgumentParser(prog="python -m kvproof.cli.live_summary", description=__doc__)
    parser.add_argument("report", type=Path, help="JUnit report of pytest")
    args = parser.parse_args(argv)
    try:
        line, enough = summary(args.report)
    except UsageError as error:
        say(str(error), file=sys.stderr)
        return 2
    if os.environ.get("KVPROOF_REQUIRE_LIVE") and not enough:
        print(f"{line}; required are {REQUIRED} passed and none skipped")
        return 3
    print(line)
    return 0
