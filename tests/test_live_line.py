"""The last line of a test run says what of it ran on live vLLM, and never more than that."""

from pathlib import Path

import pytest

from kvproof.live import availability
from kvproof.model.errors import UsageError
from tests.live_line import REQUIRED, LiveLine
from tests.processes import python

TESTS = """
import pytest

@pytest.mark.parametrize("n", range({passes}))
def test_it(n, request): request.keywords["live"] = True

def test_model(): pass
"""
SKIPS = "def test_skips(request): request.keywords['live'] = True; pytest.skip('no')\n"
FAILS = "def test_fails(request): request.keywords['live'] = True; assert 0\n"
XFAILS = "@pytest.mark.xfail\ndef test_x(request): request.keywords['live'] = True; assert 0\n"


@pytest.mark.parametrize(
    ("passes", "more", "options", "line", "code"),
    [
        (REQUIRED, XFAILS, (), f"live: {REQUIRED} tests passed on vLLM 0.0.1", 0),
        (REQUIRED, "", ("-n", "2"), f"live: {REQUIRED} tests passed on vLLM 0.0.1", 0),
        (REQUIRED - 1, "", (), f"live: {REQUIRED - 1} tests passed on vLLM 0.0.1", 3),
        (REQUIRED, SKIPS, (), f"live: {REQUIRED} tests passed on vLLM 0.0.1, 1 skipped", 3),
        (REQUIRED, FAILS, (), f"live: {REQUIRED} tests passed on vLLM 0.0.1, 1 failed", 1),
        (0, "", (), "live: not run (vLLM 0.0.1 is installed, but no live test was selected)", 3),
    ],
)
def test_the_last_line(
    passes: int, more: str, options: tuple[str, ...], line: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "test_given.py").write_text(TESTS.format(passes=passes) + more, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(
        "from kvproof.live import availability\nfrom tests.live_line import LiveLine\n"
        "availability.installed = lambda: '0.0.1'\n"
        "def pytest_configure(config):\n"
        "    if not hasattr(config, 'workerinput'): config.pluginmanager.register(LiveLine())\n",
        encoding="utf-8",
    )
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", *options)
    done = python(*command, cwd=tmp_path, KVPROOF_REQUIRE_LIVE="1")
    assert (done.stdout.splitlines()[-1], done.returncode) == (line, code), done.stdout


def test_a_vllm_that_is_not_there_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def installed() -> str:
        raise UsageError("vLLM cannot be imported. Use another.")

    monkeypatch.setattr(availability, "installed", installed)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: object())
    assert LiveLine().line == "live: not run (vLLM cannot be imported. Use another.)"
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert LiveLine().line == "live: not run (make live installs it)"
