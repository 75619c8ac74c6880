"""A pytest plugin, for `--live-line`: the last line of a run says how many tests ran on live vLLM.

If KVPROOF_REQUIRE_LIVE is set, the run ends with 3 in place of 0 unless enough of them passed.
"""

import importlib.util
import os
from collections import Counter

import pytest

from kvproof.live import availability
from kvproof.model.errors import UsageError

REQUIRED = 20
"""Minimum number of live tests that must pass if live vLLM is required. None may be skipped."""

UNKNOWN = 3
"""The exit code where too few live tests ran, and none failed."""


class LiveLine:
    """The plugin. An expected failure is not counted."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file of live tests that is skipped as a whole counts as one test."""
        if report.skipped and "live" in report.nodeid:
            self.count["skipped"] += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a live test once: where it fails or is skipped, else where it passes."""
        expected = hasattr(report, "wasxfail")
        if "live" in report.keywords and not expected and (report.when == "call" or report.skipped):
            self.count[report.outcome] += 1
        elif "live" in report.keywords and report.failed:
            self.count["failed"] += 1

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Too few live tests are not enough where they are required."""
        enough = self.count["passed"] >= REQUIRED and not self.count["skipped"]
        if os.environ.get("KVPROOF_REQUIRE_LIVE") and not enough and exitstatus == 0:
            session.exitstatus = UNKNOWN

    def pytest_unconfigure(self) -> None:
        """Print the line."""
        print(self.line)

    @property
    def line(self) -> str:
        """What ran on live vLLM."""
        try:
            version = availability.installed()
        except UsageError as error:
            missing = importlib.util.find_spec("vllm") is None
            return f"live: not run ({'make live installs it' if missing else error})"
        if not self.count.total():
            return f"live: not run (vLLM {version} is installed, but no live test was selected)"
        counted = [f"{self.count[how]} {how}" for how in ("failed", "skipped") if self.count[how]]
        return ", ".join([f"live: {self.count['passed']} tests passed on vLLM {version}", *counted])
