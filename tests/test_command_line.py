"""What a whole command line must keep: no empty value, one path for each output, short errors."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvproof.model.config import Cluster
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.explorer.running import Checkpoint
from kvproof.strategies.verdict import Verdict
from tests import signals
from tests.processes import python

SMALL: Cluster = CLUSTERS["pd-failing"]


@pytest.mark.parametrize(
    "argv",
    [
        ("explore", "--traces="),
        ("explore", "--checkpoint", ""),
        ("prove", "--certificates="),
        ("releases", "--cache", ""),
        ("report", ""),
    ],
)
def test_an_empty_value_is_refused(argv: tuple[str, ...], refused: Any, tmp_path: Path) -> None:
    assert "is empty" in refused(*argv)
    assert not any(tmp_path.iterdir())


def test_an_unknown_option_names_the_command(refused: Any) -> None:
    assert refused("explore", "--confg", "pd").count("Use kvproof explore --help") == 1
    assert "Use kvproof report --help" in refused("report", "a.jsonl", "b.jsonl")


@pytest.mark.parametrize(
    "argv",
    [
        ("explore", "--checkpoint", "x.dot", "--graph", "./x.dot"),
        ("explore", "--traces", "x.dot", "--graph", "x.dot"),
        ("explore", "--checkpoint", "t", "--traces", "t"),
        ("prove", "--table", "c", "--certificates", "c"),
        ("gate", "--junit", "g.xml", "--traces", "g.xml"),
    ],
)
def test_two_outputs_have_two_paths(argv: tuple[str, ...], refused: Any, tmp_path: Path) -> None:
    assert "Use a path for each." in refused(*argv)
    assert not any(tmp_path.iterdir())


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


def test_a_first_checkpoint_overwrites_nothing(tmp_path: Path) -> None:
    kept = Checkpoint(tmp_path / "c", every_s=0.0)
    theirs = tmp_path / "c"
    theirs.write_text("precious")  # after the command has looked
    assert explore(SMALL, kept=kept).verdict is Verdict.EXHAUSTED
    assert theirs.read_text() == "precious"
    assert "exists and is not overwritten" in kept.error


def test_a_checkpoint_behind_a_link_stays_there(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    explore(SMALL, states_max=50, kept=Checkpoint(real))
    before = real.read_bytes()
    link.symlink_to(real)
    assert explore(SMALL, kept=Checkpoint(link, resume=True)).verdict is not Verdict.UNKNOWN
    assert link.is_symlink()
    assert real.read_bytes() != before


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


@pytest.mark.parametrize("where", ["PackedSearch.expand", "Checkpoint.write"])
def test_no_memory_is_no_verdict(where: str, tmp_path: Path) -> None:
    """Also while a checkpoint is relied on: the file is not to blame."""
    code = (
        "import kvproof.cli.start, kvproof.strategies.explorer.explorer as e\n"
        "def full(*_: object) -> None: raise MemoryError\n"
        f"e.{where} = full\n"
        "kvproof.cli.start.main()"
    )
    assert (
        started("explore", "--checkpoint", "c", "--states-max", "9", cwd=tmp_path).returncode == 3
    )
    done = python("-c", code, "explore", "--checkpoint", "c", "--resume", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "the memory is used up" in done.stderr


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    (tmp_path / "g").mkdir()
    done = started("sample", shell="rmdir ../g;", cwd=tmp_path / "g")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"The working folder cannot be used .*\. Use .*\.\n", done.stderr)


@pytest.mark.parametrize("files", [5])  # with 4, Python itself does not start
def test_too_few_files_are_no_violation(files: int, tmp_path: Path) -> None:
    done = started("explore", "--config", "full", shell=f"ulimit -n {files};", cwd=tmp_path)
    assert done.returncode == 3


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
sys.argv[1:] = ["explore", "--checkpoint", "c", "--config", "pd-default"]
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
    assert (tmp_path / "c").exists()
