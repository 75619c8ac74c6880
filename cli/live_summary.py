"""The last line of a test run: how many tests ran on live vLLM.

`python -m kvproof.cli.live_summary REPORT` reads the JUnit report of pytest and does not import
vLLM. If KVPROOF_REQUIRE_LIVE is set, the exit code is 3 unless enough live tests passed.
"""

if __name__ == "__main__":  # before the imports, during which a signal may come
    import sys

    from kvproof.cli import start

    sys.exit(start.program("kvproof.cli.live_summary"))

import argparse
import importlib.util
import os
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kvproof.live import availability
from kvproof.model.errors import UsageError
from kvproof.reports.screen import say

REQUIRED = 20
"""Minimum number of live tests that must pass if live vLLM is required. None may be skipped."""

LIVE_FILE = re.compile(r"(?:^|[._/])live(?:[._]|$)")
"""Tests of live vLLM are in files with the word `live` in their names."""


class Ran(NamedTuple):
    """The live tests of a report by result."""

    passed: int
    failed: int
    skipped: int


def ran(report: Path) -> Ran:
    """Count the live tests of a JUnit report. An expected failure is not counted.

    Raises UsageError if the report is missing or is not a JUnit report.
    """
    try:
        cases = ET.parse(report).iter("testcase")
    except (OSError, ET.ParseError) as error:
        raise UsageError(
            f"The report {report} cannot be read ({error}). Use pytest --junitxml={report} "
            "to make one."
        ) from error
    outcomes = [_outcome(case) for case in cases if _is_live(case)]
    return Ran(*(outcomes.count(name) for name in Ran._fields))


def _is_live(case: ET.Element) -> bool:
    # A file that is skipped completely has its name in `name`, and no class name.
    file = case.get("classname") or case.get("name") or ""
    return LIVE_FILE.search(file) is not None


def _outcome(case: ET.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    skipped = case.find("skipped")
    if skipped is None:
        return "passed"
    return "expected" if skipped.get("type") == "pytest.xfail" else "skipped"


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
    said = f"live: {count.passed} tests passed on vLLM {version}"
    if count.failed:
        said += f", {count.failed} failed"
    if count.skipped:
        said += f", {count.skipped} skipped"
    return said, count.passed >= REQUIRED and not count.skipped


def main(argv: Sequence[str] | None = None) -> int:
    """Print the line. Returns 0, 2 for a report that cannot be read, 3 if too few live tests
    ran."""
    parser = argparse.ArgumentParser(prog="python -m kvproof.cli.live_summary", description=__doc__)
    parser.add_argument("report", type=Path, help="JUnit report of pytest")
    args = parser.parse_args(argv)
    try:
        said, enough = summary(args.report)
    except UsageError as error:
        say(str(error), file=sys.stderr)
        return 2
    if os.environ.get("KVPROOF_REQUIRE_LIVE") and not enough:
        print(f"{said}; required are {REQUIRED} passed and none skipped")
        return 3
    print(said)
    return 0
