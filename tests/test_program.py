"""The program as a process: standard streams, folders, locales, what it imports and how it ends."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import (
    QUICK,
    TRACE,
    environment,
    no_traceback,
    python,
    redirected,
    refused,
    started,
)
from tests.sentences import two_sentences
from tests.test_interrupts import MOMENTS, check, killed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as Linux does it")

# Standard streams


NOT_PRINTED = 4
"""The exit code where standard output is closed or full."""

READER_GONE = 128 + signal.SIGPIPE


@pytest.mark.parametrize(
    ("argv", "how", "why"),
    [
        *((argv, ">/dev/full", "No space left on device") for argv in QUICK),
        *((argv, ">&-", "it is closed") for argv in (*QUICK[::2], ("--help",))),
        (("explain", "faults"), "1</dev/null", "Bad file descriptor"),
    ],
)
def test_a_standard_output_that_cannot_be_written(
    argv: tuple[str, ...], how: str, why: str, tmp_path: Path
) -> None:
    said = refused(redirected(argv, tmp_path, how), NOT_PRINTED)
    assert said.startswith(f"Standard output cannot be written ({why}). Use ")


@pytest.mark.parametrize("argv", QUICK[1::2], ids=" ".join)
def test_a_pipe_whose_reader_is_gone(argv: tuple[str, ...], tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ran = started(argv, tmp_path, stdout=writer)
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (READER_GONE, b"")
    assert [*tmp_path.iterdir()] == []  # nothing is written that was not asked for


WITH_LOG_LINES = """
import sys
from kvproof.cli import start
from kvproof.reports import live_line
live_line.LINE_EVERY_S = -1
start.main()
"""


@pytest.mark.parametrize("how", ["2>/dev/full", "2>&-", "2> >(:)"])
@pytest.mark.parametrize(
    ("argv", "code"), [(("explain", "nosuch"), 2), (("explore", "--config", "full", "--json"), 0)]
)
def test_a_standard_error_that_cannot_be_written_changes_no_answer(
    argv: tuple[str, ...], code: int, how: str
) -> None:
    command = [sys.executable, "-c", WITH_LOG_LINES, *argv]
    shell = ["bash", "-c", f'exec "$@" {how}', "bash", *command]
    ran = subprocess.run(shell, env=environment(), capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (code, b"")
    assert ran.stdout == b"" if code else json.loads(ran.stdout)["verdict"] == "EXHAUSTED"


# Odd folders and locales


CLUSTER = {
    "name": "名前",
    "engines": [{"name": "É", "groups": [{"kind": "full", "block_size": 2}]}],
    "jobs": [{"name": "r0é", "prompt": "é"}],
}


POSIX = {"LANG": "C", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
ASCII = {**POSIX, "PYTHONIOENCODING": "ascii"}
LATIN = {"PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1:strict"}


@pytest.mark.nightly
@pytest.mark.parametrize("locale", [POSIX, ASCII, LATIN])
def test_names_that_the_locale_cannot_write(locale: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text(json.dumps(CLUSTER, ensure_ascii=False), encoding="utf-8")
    here = environment(**locale)
    for more, code in (((), 0), (("--fault", "double_free"), 1)):
        ran = started(["explore", "--config", "own.json", *more], tmp_path, env=here)
        no_traceback(ran)
        assert ran.returncode == code, ran.stderr.decode()
        assert (b"VIOLATED" if code else b"EXHAUSTED") in ran.stdout
    ran = started(["explore", "--config", "own.json", "--json"], tmp_path, env=here)
    assert ran.returncode == 0
    assert json.loads(ran.stdout)["config"]["name"] == CLUSTER["name"]


# How it starts and ends


LARGE = {"z3", "hypothesis", "networkx", "numpy", "rich", "pytest", "torch", "vllm"}
"""Packages that take time to import."""

COMMAND = ("explore", "--config", "full")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_what_answers_at_once_imports_little(arguments: list[str]) -> None:
    code = (
        "import atexit, sys, kvproof.cli.start as start;"
        "atexit.register(lambda: print(*{m.split('.')[0] for m in sys.modules}, file=sys.stderr));"
        "start.main()"
    )
    done = python("-c", code, *arguments)
    modules = done.stderr.split()
    assert done.returncode == 0
    assert "argparse" in modules
    assert not LARGE & set(modules)


def test_a_defect_is_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys; sys.modules['kvproof.cli.explain'] = sys", encoding="utf-8"
    )
    done = python("-m", "kvproof", "explain", first=[tmp_path])
    assert done.returncode == 3
    place, _, verdict = done.stderr.splitlines()[-1].partition(", ended the run. ")
    assert place.startswith("An exception in cli/")
    assert verdict == "This is a defect of kvproof, and there is no verdict."


MINE = Path(__file__).parent.parent / "src" / "kvproof" / "invariants" / "mine.py"
OF_AN_AUTHOR = f"""
import sys, types
text = "def add_options(_): pass\\ndef run(_): return 1 // 0\\n"
module = types.ModuleType("kvproof.cli.explain")
exec(compile(text, {str(MINE)!r}, "exec"), vars(module))
sys.modules["kvproof.cli.explain"] = module
"""


def test_an_exception_in_a_check_of_ones_own_is_no_defect_of_kvproof(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(OF_AN_AUTHOR, encoding="utf-8")
    done = python("-m", "kvproof", "explain", first=[tmp_path])
    assert done.returncode == 3
    said = done.stderr.splitlines()[-1]
    assert said.startswith(
        "An exception in invariants/mine.py, line 2 ended the run, and there is "
    )
    assert two_sentences(said)
    assert "ZeroDivisionError" in done.stderr


def test_nothing_looks_for_a_home_before_it_is_needed(tmp_path: Path) -> None:
    """No HOME, and a user that the system does not know."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, pwd\n"
        "def unknown(_): raise KeyError('there is no such user')\n"
        "pwd.getpwuid = pwd.getpwnam = unknown\n",
        encoding="utf-8",
    )
    nowhere = dict.fromkeys(("HOME", "XDG_CACHE_HOME"))
    for command, code in (
        (COMMAND, 0),
        (("--version",), 0),
        (("replay", str(TRACE), "--releases"), 2),
    ):
        done = python("-m", "kvproof", *command, first=[tmp_path], **nowhere)
        assert done.returncode == code, done.stderr
    assert done.stderr == (
        "There is no home folder for the releases and mirrors of vLLM. "
        "Use --cache with a folder that you may write to.\n"
    )


# What a whole command line must keep


@pytest.mark.parametrize(
    "argv",
    [
        ("explore", "--traces="),
        ("explore", "--traces", ""),
        ("prove", "--obligation="),
        ("campaign", "--cache", ""),
        ("report", ""),
    ],
)
def test_an_empty_value_is_refused(argv: tuple[str, ...], refused: Any, tmp_path: Path) -> None:
    assert "is empty" in refused(*argv)
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
    ran = started(["sample"], tmp_path / "g", ("sh", "-c", 'rmdir ../g; exec "$0" "$@"'))
    assert ran.stdout == b""
    assert refused(ran).startswith("The working folder cannot be used ")


def test_a_closed_terminal_is_an_interruption(tmp_path: Path) -> None:
    ended = killed(tmp_path, MOMENTS["explore, searches"], signal.SIGHUP)
    check(tmp_path, signal.SIGHUP, ended)
