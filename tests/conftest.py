"""Hypothesis profiles, golden transcripts that can be rewritten, and the command line.

`KVPROOF_VLLM` names the vLLM of the live tests, as `--vllm` does for a command (default: the
installed one).
"""

import contextlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from kvproof.cli.main import main
from kvproof.live.trees import lend, named
from kvproof.model.errors import UsageError
from kvproof.reports import live_line
from kvproof.reports.document import VERSION
from tests import lent, signals
from tests.sentences import two_sentences
from tests.undriven import Undriven

TESTDATA = Path(__file__).parent / "testdata"
CAREFUL = "only commit the changes if you understand them"

settings.register_profile(
    "default",
    max_examples=50,
    stateful_step_count=20,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("default")

# Programs that tests start in other folders find the package where the tests do.
if os.environ.get("PYTHONPATH"):
    folders = os.environ["PYTHONPATH"].split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(f) for f in folders if f)

# Threads of OpenMP that wait for work would take the processors from the tests beside them.
os.environ.setdefault("OMP_NUM_THREADS", "1")

lent.note()
if os.environ.get("KVPROOF_VLLM") or importlib.util.find_spec("vllm"):
    try:
        lend(named(os.environ.get("KVPROOF_VLLM") or None, None))
    except UsageError as error:
        print(f"KVPROOF_VLLM: {error}", file=sys.stderr)
        raise SystemExit(2) from None

rewritten = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help=f"rewrite the golden transcripts: {CAREFUL}"
    )
    parser.addoption(
        "--live-line", action="store_true", help="end with a line: what ran on live vLLM"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[rewritten] = []
    line = config.getoption("--live-line") and not hasattr(config, "workerinput")
    config.pluginmanager.register(Undriven(line=line))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for file in config.stash[rewritten]:
        terminalreporter.write_line(f"rewrote {file}: {CAREFUL}", yellow=True)


@pytest.fixture
def golden(pytestconfig: pytest.Config) -> Callable[[str, str], None]:
    """Compare a text with a file of testdata, or rewrite the file where `--rewrite` is given."""

    def compare(name: str, text: str) -> None:
        path = TESTDATA / name
        old = path.read_text(encoding="utf-8") if path.exists() else None
        if pytestconfig.getoption("--rewrite") and old != text:
            path.write_text(text, encoding="utf-8")
            pytestconfig.stash[rewritten].append(name)
            return
        assert old is not None, f"{path} is missing: run pytest --rewrite, {CAREFUL}"
        assert text == old, f"{name} differs: if that is right run pytest --rewrite, {CAREFUL}"

    return compare


@pytest.fixture(autouse=True)
def _no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """The readline library, where Python has loaded it, gives COLUMNS to all processes."""
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine prints what an idle one prints: nothing is said because something takes
    long."""
    monkeypatch.setattr(live_line, "LINE_EVERY_S", 1e6)


@pytest.fixture
def compare() -> Iterator[Callable[..., Any]]:
    """Compare two sides made by hand until the test ends (`fake_sides.compared`)."""
    from tests.fake_sides import compared

    with contextlib.ExitStack() as stack:
        yield lambda *given: stack.enter_context(compared(*given))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """This process heeds SIGINT, also where the tests run in the background."""
    with signals.heeded():
        yield


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run a command line in a fresh folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*argv: str) -> tuple[int, str, str]:
        code = main(argv)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def as_json(run: Callable[..., Any]) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Run a command line with `--json`: exit code and the object it printed, each field of which
    is on the page about files."""
    page = (TESTDATA.parents[1] / "docs/reference/files.md").read_text(encoding="utf-8")

    def call(*argv: str) -> tuple[int, dict[str, Any]]:
        code, out, err = run(*argv, "--json")
        assert err == ""
        record = json.loads(out)
        assert (record["version"], record["exit_code"]) == (VERSION, code)
        assert record["command"] == argv[0]
        assert [name for name in record if f"`{name}`" not in page] == []
        return code, record

    return call


@pytest.fixture
def refused(run: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Run a command line that must be refused; gives its message."""

    def call(*argv: str) -> str:
        code, out, err = run(*argv)
        assert code == 2
        assert out == ""
        assert two_sentences(err), err
        return err

    return call
