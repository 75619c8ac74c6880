"""What a whole command line must keep: no empty value, and short errors."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import signals
from tests.processes import python


@pytest.mark.parametrize(
    "argv",
    [
        ("explore", "--traces="),
        ("explore", "--traces", ""),
        ("prove", "--table="),
        ("campaign", "--cache", ""),
        ("report", ""),
    ],
)
def test_an_empty_value_is_refused(argv: tuple[str, ...], refused: Any, tmp_path: Path) -> None:
    assert "is empty" in refused(*argv)
    assert not any(tmp_path.iterdir())


def test_an_unknown_option_names_the_command(refused: Any) -> None:
    assert refused("explore", "--confg", "pd").count("Use kvproof explore --help") == 1
    assert "Use kvproof report --help" in refused("report", "a", "b", "c")


@pytest.mark.parametrize(
    "argv",
    [
        ("explore", "--fault", "x" * 100_000),
        ("explore", "--seed", "1" * 5000),
        ("explore", "--states-max", "9" * 5000),
        ("prove", "--obligation", "x" * 100_000),
        ("prove", "--timeout-s", "1" * 5000),
        ("sample", "--machine", "live", "--vllm", "../.."),
    ],
)
def test_an_error_is_short(argv: tuple[str, ...], refused: Any) -> None:
    assert len(refused(*argv)) < 1000


@pytest.mark.parametrize("number", ["٣", "1_0", " 1", "+1"])
def test_a_count_has_plain_digits(number: str, refused: Any) -> None:
    assert "--states-max" in refused("explore", "--states-max", number)


def started(*argv: str, shell: str = "", cwd: Path) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join(folder for folder in sys.path if folder)
    return subprocess.run(
        ["bash", "-c", f'{shell} exec "$0" -m kvproof "$@"', sys.executable, *argv],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
        timeout=600,
    )


def test_no_memory_is_no_verdict(tmp_path: Path) -> None:
    code = (
        "import kvproof.cli.start, kvproof.strategies.explorer.explorer as e\n"
        "def full(*_: object) -> None: raise MemoryError\n"
        "e.PackedSearch.expand = full\n"
        "kvproof.cli.start.main()"
    )
    done = python("-c", code, "explore", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "the memory is used up" in done.stderr


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    (tmp_path / "g").mkdir()
    done = started("sample", shell="rmdir ../g;", cwd=tmp_path / "g")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"The working folder cannot be used .*\. Use .*\.\n", done.stderr)


CLOSED = """
import signal, sys
from kvproof.cli import start
from kvproof.strategies.explorer.packed import PackedSearch

expand = PackedSearch.expand

def closed(search):
    if search.reached.expanded == 10:
        signal.raise_signal(signal.SIGHUP)
    expand(search)

PackedSearch.expand = closed
sys.argv[1:] = ["explore", "--config", "pd-default"]
start.main()
"""


def test_a_closed_terminal_is_an_interruption(tmp_path: Path) -> None:
    path = os.pathsep.join(folder for folder in sys.path if folder)
    done = subprocess.run(
        [sys.executable, "-c", CLOSED],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        preexec_fn=signals.as_in_a_terminal,
    )
    assert done.returncode == 129
    assert "interrupted" in done.stdout
