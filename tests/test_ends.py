"""How the program starts and ends: what it imports, what it needs, and how it ends."""

from pathlib import Path

import pytest

from kvproof.live.releases import cache_folder
from kvproof.model.errors import UsageError
from tests.processes import environment, python, started
from tests.sentences import two_sentences

LARGE = {"z3", "hypothesis", "networkx", "numpy", "rich", "pytest", "torch", "vllm"}
"""Packages that take time to import."""

COMMAND = ("explore", "--config", "full")
TRACE = str(next((Path(__file__).parent.parent / "findings").glob("*/trace.jsonl")))


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


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "ascii:strict"])
def test_text_that_the_encoding_lacks_is_escaped(encoding: str, tmp_path: Path) -> None:
    here = environment(PYTHONIOENCODING=encoding)
    done = started(["explore", "--config", "pd→é"], tmp_path, env=here)
    assert done.returncode == 2
    assert rb"named 'pd\u2192" in done.stderr


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
    for command, code in ((COMMAND, 0), (("--version",), 0), (("replay", TRACE, "--releases"), 2)):
        done = python("-m", "kvproof", *command, first=[tmp_path], **nowhere)
        assert done.returncode == code, done.stderr
    assert done.stderr == (
        "There is no home folder for the releases and mirrors of vLLM. "
        "Use --cache with a folder that you may write to.\n"
    )


def test_the_default_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert cache_folder(None) == Path("/cache/kvproof")
    assert cache_folder(Path("mine")) == Path("mine")
    for ignored in ("", "relative"):  # as the XDG specification asks
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert cache_folder(None) == Path("/home/somebody/.cache/kvproof")
    monkeypatch.setenv("HOME", "relative")
    with pytest.raises(UsageError, match=r"no home folder.*Use --cache"):
        cache_folder(None)
