"""A pytest plugin: a test that this vLLM does not let run shows nothing about vLLM. It is reported
as skipped, with the word UNKNOWN, and the run ends with 3 in place of 0.

With `--live-line` the last line of a run says how many tests ran on live vLLM. If
KVPROOF_REQUIRE_LIVE is set, such a run ends with 3 in place of 0 unless enough of them passed.
"""

import importlib.util
import os
from collections import Counter
from collections.abc import Generator, Iterator

import pytest

from kvproof.live import availability
from kvproof.live.contract.features import CORE
from kvproof.live.contract_check import check
from kvproof.model.errors import AdapterDrift, UsageError
from kvproof.strategies.run import Violated

TESTED_IN_FULL = "0.32.0"
"""The release of vLLM that all live tests are written for. Some tests hold what is true of this
release alone; where they fail on another one without a violation, they show nothing."""

UNKNOWN = 3
"""The exit code where a test could not be run, or too few live tests ran, and none failed."""

REQUIRED = 20
"""Minimum number of live tests that must pass if live vLLM is required. None may be skipped."""


class Undriven:
    """The plugin. `count` has the live tests by outcome, without expected failures."""

    def __init__(self, *, line: bool = False) -> None:
        self.seen = False
        self.shows_line = line
        self.count: Counter[str] = Counter()
        self.why: str | None = None

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """A live test is UNKNOWN where no engine can be driven. Where there is no vLLM at all, it
        is skipped, unless live vLLM is required."""
        if "live" not in item.keywords:
            return
        if not importlib.util.find_spec("vllm") and not os.environ.get("KVPROOF_REQUIRE_LIVE"):
            pytest.skip("vLLM cannot be imported: run make live")
        if self.why is None:
            self.why = _undrivable()
        if self.why:
            raise AdapterDrift(self.why)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """A failure that shows nothing about vLLM is no failure."""
        report = yield
        if report.failed and call.excinfo is not None:
            why = _nothing_shown(call.excinfo.value, "live" in item.keywords)
            if why:
                report.outcome = "skipped"
                place = item.location[0], (item.location[1] or 0) + 1
                report.longrepr = (*map(str, place[:1]), place[1], f"UNKNOWN: {why}")
                # With several processes, the one that ends the run sees the report alone.
                report.undriven = True  # type: ignore[attr-defined]
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that is skipped as a whole counts as one live test: it asks for what is missing
        where live vLLM is not installed."""
        if report.skipped:
            self.count["skipped"] += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what was undriven, also in another process. Count a live test once: where it fails
        or is skipped, else where it passes."""
        self.seen = self.seen or getattr(report, "undriven", False)
        expected = hasattr(report, "wasxfail")
        if "live" in report.keywords and not expected and (report.when == "call" or report.skipped):
            self.count[report.outcome] += 1
        elif "live" in report.keywords and report.failed:
            self.count["failed"] += 1

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Tests that could not be run are not passed, and too few live tests are not enough: the
        exit code is that of an unknown verdict."""
        required = self.shows_line and os.environ.get("KVPROOF_REQUIRE_LIVE")
        enough = self.count["passed"] >= REQUIRED and not self.count["skipped"]
        if exitstatus == pytest.ExitCode.OK and (self.seen or (required and not enough)):
            session.exitstatus = UNKNOWN

    def pytest_unconfigure(self) -> None:
        """Print the line."""
        if self.shows_line:
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


def _undrivable() -> str:
    """Why no engine of this vLLM can be driven; empty if one can."""
    try:
        check().require([CORE])
    except AdapterDrift as drift:
        return drift.why
    except SystemExit as end:
        return f"vLLM ends the process when it is imported ({end})"
    return ""


def _nothing_shown(error: BaseException, live: bool) -> str:
    """Why the failure of a test shows nothing about vLLM; empty if it may show something."""
    errors = list(_with_causes(error))
    drift = next((each for each in errors if isinstance(each, AdapterDrift)), None)
    if drift is not None:
        return str(drift)
    if not live or any(isinstance(each, Violated) for each in errors):
        return ""
    missing = next((each for each in errors if _is_of_vllm(each)), None)
    if missing is not None:
        return f"This vLLM lacks something that the test needs ({missing})."
    version = _version()
    if version == TESTED_IN_FULL:
        return ""
    said = str(error).partition("\n")[0]
    return (
        f"The test is written for vLLM {TESTED_IN_FULL}; on vLLM {version} it fails, and shows no "
        f"violation ({type(error).__name__}: {said})."
    )


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """An exception, those of its group, and what each was raised from."""
    yield error
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _with_causes(each)
    if error.__cause__ is not None:
        yield from _with_causes(error.__cause__)


def _is_of_vllm(error: BaseException) -> bool:
    """Whether a name of vLLM is missing."""
    if isinstance(error, ImportError):
        return (error.name or "").split(".")[0] == "vllm"
    if not isinstance(error, AttributeError):
        return False
    owner = error.obj
    module = getattr(owner, "__module__", None) or getattr(owner, "__name__", None)
    return str(module or type(owner).__module__).split(".")[0] == "vllm"


def _version() -> str:
    try:
        return availability.installed()
    except UsageError:
        return "unknown"
