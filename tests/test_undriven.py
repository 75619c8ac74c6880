"""What a run of the tests says of live vLLM: what did not run is not passed."""

import pytest

from kvproof.live import availability
from kvproof.model.finding import Finding
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.run import Violated
from tests import undriven
from tests.reasons import said
from tests.undriven import REQUIRED, TESTED_IN_FULL, Undriven

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def _drivable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Live tests are required, and a vLLM that can be driven is there."""
    monkeypatch.setenv("KVPROOF_REQUIRE_LIVE", "1")
    monkeypatch.setattr(undriven, "_undrivable", str)
    monkeypatch.setattr(availability, "installed", lambda: TESTED_IN_FULL)


def run(pytester: pytest.Pytester, tests: str, *, line: bool = False) -> tuple[int, str]:
    """Run these tests with the plugin: the exit code, and what is printed."""
    pytester.makepyfile(f"import pytest\n{tests}")
    ran = pytester.runpytest_inprocess("-q", "-rs", plugins=[Undriven(line=line)])
    return int(ran.ret), ran.stdout.str().rstrip("\n")


DRIFTS = """
from kvproof.model.errors import AdapterDrift
def test_it_drives():
    raise AdapterDrift("This vLLM has no Scheduler.schedule", "Scheduler.schedule")
def test_another(): pass
"""


def test_a_drift_of_the_adapter_is_unknown(pytester: pytest.Pytester) -> None:
    code, printed = run(pytester, DRIFTS)
    assert code == 3, printed
    assert "1 passed, 1 skipped" in printed
    assert "UNKNOWN: This vLLM has no Scheduler.schedule. Use kvproof doctor" in printed


violated = Violated(CLUSTERS["pd"], Finding("pool_adds_up", said("a", "b")), ())
LIVE = "from tests.test_undriven import violated\n@pytest.mark.live\ndef test_it():\n"
FAILING = "assert 1 == 2"
VIOLATING = "raise violated"
GROUPED = "raise ExceptionGroup('two', [ValueError('a'), violated])"
LACKING = "raise ModuleNotFoundError('no module', name='vllm.v1.nothing')"


@pytest.mark.parametrize(
    ("body", "version", "code"),
    [
        (FAILING, TESTED_IN_FULL, 1),
        (FAILING, "0.99.0", 3),
        (VIOLATING, "0.99.0", 1),
        (GROUPED, "0.99.0", 1),
        (LACKING, TESTED_IN_FULL, 3),
    ],
)
def test_only_what_vllm_shows_fails_a_live_test(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    version: str,
    code: int,
) -> None:
    monkeypatch.setattr(availability, "installed", lambda: version)
    ended, printed = run(pytester, f"{LIVE}    {body}\n")
    assert ended == code, printed
    assert ("UNKNOWN: " in printed) == (code == 3)


# The last line


PASSES = """
@pytest.mark.live
@pytest.mark.parametrize("n", range({passes}))
def test_it(n): pass
"""
SKIPS = "@pytest.mark.live\ndef test_skips(): pytest.skip('no')\n"
FAILS = "@pytest.mark.live\ndef test_fails(): assert 0\n"
EXPECTED = "@pytest.mark.live\n@pytest.mark.xfail\ndef test_x(): assert 0\n"
PASSED = f"live: {REQUIRED} tests passed on vLLM {TESTED_IN_FULL}"


@pytest.mark.parametrize(
    ("passes", "more", "line", "code"),
    [
        (REQUIRED, EXPECTED, PASSED, 0),
        (REQUIRED - 1, "", PASSED.replace(f" {REQUIRED} ", f" {REQUIRED - 1} "), 3),
        (REQUIRED, SKIPS, f"{PASSED}, 1 skipped", 3),
        (REQUIRED, FAILS, f"{PASSED}, 1 failed", 1),
        (
            *(0, "def test_model(): pass\n"),
            f"live: not run (vLLM {TESTED_IN_FULL} is installed, but no live test was selected)",
            3,
        ),
    ],
)
def test_the_last_line(
    pytester: pytest.Pytester,
    passes: int,
    more: str,
    line: str,
    code: int,
) -> None:
    ended, printed = run(pytester, PASSES.format(passes=passes) * bool(passes) + more, line=True)
    assert (printed.splitlines()[-1], ended) == (line, code), printed


def test_a_file_that_is_skipped_as_a_whole_is_not_passed(pytester: pytest.Pytester) -> None:
    passing = f"""
@pytest.mark.live
@pytest.mark.parametrize("number", range({REQUIRED}))
def test_it(number): pass
"""
    assert run(pytester, passing, line=True)[0] == 0
    pytester.makepyfile(test_other="import pytest\npytest.importorskip('nothing.of.this.name')")
    code, printed = run(pytester, passing, line=True)
    assert (code, "1 skipped" in printed.splitlines()[-1]) == (3, True), printed
