"""Disks, folders and locales that are odd: each test runs a process of its own.

A file that cannot be written costs no verdict. Nothing ends in a traceback.
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import PROGRAM, QUICK, TRACE, environment, no_traceback, refused, started

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as Linux does it")

CLUSTER = {
    "name": "名前",
    "engines": [{"name": "É", "groups": [{"kind": "full", "block_size": 2}]}],
    "jobs": [{"name": "r0é", "prompt": "é"}],
}


def users(*options: str) -> tuple[str, ...]:
    """The command that runs another with these options of setpriv; skips where root may not."""
    command = ("setpriv", *options)
    if subprocess.run([*command, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this root may not give up its rights (setpriv)")
    return command


@pytest.fixture
def bound() -> tuple[str, ...]:
    """The command that runs another as a user whom permissions bind."""
    return users("--inh-caps=-all", "--bounding-set=-all") if os.getuid() == 0 else ()


def small_files() -> None:
    """As on a full disk: no file may be longer than 64 bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))


@pytest.mark.parametrize(
    ("argv", "verdict"),
    [
        (("report", str(TRACE), "--html", "p.html"), "BROKEN"),
        (("prove", "--obligation", "trim_equal_counts", "--table", "t.md"), "PROVED"),
    ],
)
def test_an_output_that_does_not_fit_on_the_disk(
    argv: tuple[str, ...], verdict: str, tmp_path: Path
) -> None:
    ran = started(argv, tmp_path, preexec_fn=small_files)
    assert "cannot be written" in refused(ran)
    assert verdict in ran.stdout.decode()
    assert [*tmp_path.iterdir()] == []


def test_a_small_file_system_that_is_full(tmp_path: Path) -> None:
    """A real one, where root may mount it: the verdict is there, and no part of a trace."""
    script = 'mount -t tmpfs -o size=8k none "$0" && cd "$0" && { "$@"; code=$?; find . -type f; }'
    command = ["unshare", "-m", "sh", "-c", f"{script}; exit $code", str(tmp_path), *PROGRAM]
    probe = ["unshare", "-m", "mount", "-t", "tmpfs", "none", str(tmp_path)]
    if os.getuid() != 0 or subprocess.run(probe, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a small file system")
    argv = ["explore", "--fault", "front_trim", "--traces", "kept"]
    ran = subprocess.run([*command, *argv], check=False, env=environment(), capture_output=True)
    assert "No space left" in refused(ran, 1)
    assert "VIOLATED" in ran.stdout.decode()
    assert "./" not in ran.stdout.decode()


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("explore", "--fault", "front_trim"), 1),
        (("report", str(TRACE), "--html", "p.html"), 2),
        (("prove", "--obligation", "trim_equal_counts", "--table", "t.md"), 2),
        (("explore", "--config", "oversized"), 0),
        (("sample", "--config", "oversized", "--examples", "2", "--steps", "4"), 0),
        (("explain", "faults"), 0),
    ],
)
def test_a_read_only_folder(
    argv: tuple[str, ...], code: int, tmp_path: Path, bound: tuple[str, ...]
) -> None:
    """A file that was asked for is refused before the work. A trace that cannot be written costs
    no verdict. All else is as in any folder."""
    tmp_path.chmod(0o555)
    ran = started(argv, tmp_path, bound)
    tmp_path.chmod(0o755)
    no_traceback(ran)
    assert ran.returncode == code
    assert bool(ran.stdout) == (code != 2)
    if code:
        refused(ran, code)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("option", "path"),
    [
        (option, path)
        for option in ("--table", "--traces")
        for path in ("file/x", "missing/x", "full", "/proc/x")
        if (option, path) != ("--traces", "missing/x")  # a folder of traces is made
    ],
)
def test_an_output_that_cannot_be_made(option: str, path: str, tmp_path: Path) -> None:
    """This binds root too: a file where a folder is needed, a link to a device, a
    folder of the kernel."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").symlink_to("/dev/full")
    command = "prove" if option == "--table" else "explore"
    ran = started([command, option, path], tmp_path)
    refused(ran)
    assert ran.stdout == b""
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "full"]
    assert (tmp_path / "full").is_symlink()
    assert (tmp_path / "file").read_text() == "mine"


def test_a_run_leaves_nothing_but_its_outputs(tmp_path: Path) -> None:
    for argv in (QUICK[0], QUICK[3], QUICK[4], ("report", str(TRACE))):
        assert started(argv, tmp_path).returncode == 0
        assert [*tmp_path.iterdir()] == [], argv


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
