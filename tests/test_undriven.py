"""What a run of the tests says of live vLLM: what did not run is not passed."""

import subprocess
from pathlib import Path

import pytest

from tests.processes import python
from tests.undriven import REQUIRED, TESTED_IN_FULL

HERE = Path(__file__).parent
DRIFTS = """
from kvproof.model.errors import AdapterDrift

def test_it_drives():
    raise AdapterDrift("This vLLM has no Scheduler.schedule", "Scheduler.schedule")

def test_another():
    pass
"""


def run(folder: Path, tests: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run pytest with the conftest of these tests."""
    (folder / "test_given.py").write_text(tests, encoding="utf-8")
    command = ("-m", "pytest", "-q", "-rs", "-p", "conftest", *options, "test_given.py")
    return python(*command, cwd=folder, first=[HERE])


def test_a_drift_of_the_adapter_is_unknown(tmp_path: Path) -> None:
    done = run(tmp_path, DRIFTS)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "1 passed, 1 skipped" in done.stdout
    assert "UNKNOWN: This vLLM has no Scheduler.schedule. Use kvproof doctor" in done.stdout


OTHERWISE = """
import sys
import types

import pytest

from kvproof.live import availability
from kvproof.model.finding import Finding
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.run import Violated
from tests import undriven
from tests.reasons import said

VERSION = "{version}"
undriven._undrivable = str
availability.installed = lambda: VERSION
sys.modules.setdefault("vllm", types.ModuleType("vllm")).__spec__ = pytest.__spec__
pytestmark = pytest.mark.live


def {body}
"""
FAILING = "test_it(): assert 1 == 2"
VIOLATED = 'Violated(CLUSTERS["pd"], Finding("pool_adds_up", said("a", "b")), ())'
VIOLATING = f"test_it(): raise {VIOLATED}"
GROUPED = f"test_it(): raise ExceptionGroup('two', [ValueError('a'), {VIOLATED}])"
LACKING = "test_it(): from vllm.v1.nothing import Nobody"


@pytest.mark.parametrize(
    ("body", "version", "code"),
    [
        (FAILING, TESTED_IN_FULL, 1),
        (FAILING, "0.99.0", 3),
        (VIOLATING, "0.99.0", 1),
        (GROUPED, "0.99.0", 1),
        (LACKING, TESTED_IN_FULL, 3),
    ],
    ids=["fails", "fails elsewhere", "violates", "violates in a group", "lacks"],
)
def test_only_what_vllm_shows_fails_a_live_test(
    tmp_path: Path, body: str, version: str, code: int
) -> None:
    done = run(tmp_path, OTHERWISE.format(body=body, version=version))
    assert done.returncode == code, done.stdout + done.stderr
    assert ("UNKNOWN: " in done.stdout) == (code == 3)


# The last line


COUNTED = """
import pytest

@pytest.mark.parametrize("n", range({passes}))
def test_it(n, request): request.keywords["live"] = True

def test_model(): pass
"""
SKIPS = "def test_skips(request): request.keywords['live'] = True; pytest.skip('no')\n"
FAILS_LIVE = "def test_fails(request): request.keywords['live'] = True; assert 0\n"
EXPECTED = "@pytest.mark.xfail\ndef test_x(request): request.keywords['live'] = True; assert 0\n"


@pytest.mark.parametrize(
    ("passes", "more", "options", "line", "code"),
    [
        (REQUIRED, EXPECTED, (), f"live: {REQUIRED} tests passed on vLLM 0.0.1", 0),
        (REQUIRED, "", ("-n", "2"), f"live: {REQUIRED} tests passed on vLLM 0.0.1", 0),
        (REQUIRED - 1, "", (), f"live: {REQUIRED - 1} tests passed on vLLM 0.0.1", 3),
        (REQUIRED, SKIPS, (), f"live: {REQUIRED} tests passed on vLLM 0.0.1, 1 skipped", 3),
        (REQUIRED, FAILS_LIVE, (), f"live: {REQUIRED} tests passed on vLLM 0.0.1, 1 failed", 1),
        (0, "", (), "live: not run (vLLM 0.0.1 is installed, but no live test was selected)", 3),
    ],
)
def test_the_last_line(
    passes: int, more: str, options: tuple[str, ...], line: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "test_given.py").write_text(COUNTED.format(passes=passes) + more, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(
        "from kvproof.live import availability\nfrom tests import undriven\n"
        "availability.installed = lambda: '0.0.1'\nundriven.TESTED_IN_FULL = '0.0.1'\n"
        "def pytest_configure(config):\n"
        "    line = not hasattr(config, 'workerinput')\n"
        "    config.pluginmanager.register(undriven.Undriven(line=line))\n",
        encoding="utf-8",
    )
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", *options)
    done = python(*command, cwd=tmp_path, KVPROOF_REQUIRE_LIVE="1")
    assert (done.stdout.splitlines()[-1], done.returncode) == (line, code), done.stdout
