"""The last line of a test run says what of it ran on live vLLM, and never more than that."""

import subprocess
import sys
from pathlib import Path

import pytest

from kvproof.cli import live_summary
from kvproof.cli.live_summary import Ran, ran
from kvproof.live import availability
from kvproof.model.errors import UsageError
from tests.sentences import two_sentences

LIVE = "tests.test_live_faults"
SKIP = '<skipped type="pytest.skip" message="no"/>'
EXPECTED = '<skipped type="pytest.xfail" message="known"/>'


class Report:
    """A JUnit report being written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cases: list[str] = []

    def add(self, inside: str = "", file: str = LIVE, times: int = 1) -> "Report":
        self.cases += [f'<testcase classname="{file}" name="test_x">{inside}</testcase>'] * times
        cases = "".join(self.cases)
        text = f"<testsuites><testsuite>{cases}</testsuite></testsuites>"
        self.path.write_text(text, encoding="utf-8")
        return self


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return Report(tmp_path / "junit.xml").add(file="tests.test_counts")


@pytest.fixture
def _there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "installed", lambda: "0.32.0")


@pytest.fixture
def _required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPROOF_REQUIRE_LIVE", "1")


@pytest.mark.parametrize(
    ("file", "count"),
    [
        ("tests.test_live_faults", 1),
        ("tests.test_stateful_live", 1),
        ("tests.test_live.TestClass", 1),
        ("tests.test_delivery", 0),
        ("tests.test_alive", 0),
    ],
)
def test_a_live_test_is_known_by_its_file(report: Report, file: str, count: int) -> None:
    assert ran(report.add(file=file).path).passed == count


def test_live_tests_are_counted_by_outcome(report: Report) -> None:
    report.add(times=3).add("<failure/>").add("<error/>").add(SKIP, times=4).add(EXPECTED)
    assert ran(report.path) == Ran(passed=3, failed=2, skipped=4)


def test_a_file_that_is_skipped_as_a_whole_counts(report: Report) -> None:
    report.cases.append(f'<testcase classname="" name="{LIVE}">{SKIP}</testcase>')
    assert ran(report.add(file="tests.test_traces").path) == Ran(0, 0, 1)


@pytest.mark.usefixtures("_there", "_required")
@pytest.mark.parametrize(
    ("passed", "inside", "code"),
    [(20, "", 0), (18, "", 3), (25, SKIP, 3), (25, EXPECTED, 0)],
)
def test_enough_must_pass_and_none_be_skipped(
    report: Report, passed: int, inside: str, code: int
) -> None:
    report.add(times=passed - 1).add(inside)
    assert live_summary.main([str(report.path)]) == code


@pytest.mark.usefixtures("_there")
def test_the_line_says_what_ran(
    report: Report, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KVPROOF_REQUIRE_LIVE", raising=False)
    assert live_summary.main([str(report.path)]) == 0
    report.add(times=3).add("<failure/>").add(SKIP)
    assert live_summary.main([str(report.path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "live: not run (vLLM 0.32.0 is installed, but no live test was selected)",
        "live: 3 tests passed on vLLM 0.32.0, 1 failed, 1 skipped",
    ]


def test_without_vllm_the_line_says_how_to_get_it(
    report: Report, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.delenv("KVPROOF_REQUIRE_LIVE", raising=False)
    report.add(SKIP, times=30)
    assert live_summary.main([str(report.path)]) == 0
    monkeypatch.setenv("KVPROOF_REQUIRE_LIVE", "1")
    assert live_summary.main([str(report.path)]) == 3
    first, second = capsys.readouterr().out.splitlines()
    assert first == "live: not run (make live installs it)"
    assert second.startswith(first)


@pytest.mark.usefixtures("_required")
def test_a_vllm_that_is_not_there_is_not_run(
    report: Report, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def installed() -> str:
        raise UsageError("vLLM cannot be imported. Use another.")

    monkeypatch.setattr(availability, "installed", installed)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: object())
    assert live_summary.main([str(report.add(times=30).path)]) == 3
    assert "live: not run (vLLM cannot be imported. Use another." in capsys.readouterr().out


@pytest.mark.usefixtures("_there")
@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "not XML",
        "<testsuites>",
        "<html><body/></html>",
        '<!DOCTYPE t [<!ENTITY a "b"><!ENTITY c "&a;&a;">]><testsuites>&c;</testsuites>',
        '<!DOCTYPE t SYSTEM "file:///etc/passwd"><testsuites/>',
        "<a>" * 100_000 + "</a>" * 100_000,
        '<?xml version="1.0" encoding="nosuch"?><testsuites/>',
        '<?xml version="1.0" encoding="shift_jis"?><testsuites/>',
    ],
)
def test_a_report_that_cannot_be_read_is_bad_usage(
    tmp_path: Path, text: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "junit.xml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    assert live_summary.main([str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "cannot be read" in captured.err
    assert two_sentences(captured.err)


def test_the_summary_does_not_import_vllm(report: Report) -> None:
    program = (
        "import sys; from kvproof.cli import live_summary; live_summary.main(sys.argv[1:]); "
        + ("sys.exit('vllm' in sys.modules)")
    )
    done = subprocess.run([sys.executable, "-c", program, report.path], capture_output=True)
    assert done.returncode == 0
