"""The program in environments that are odd: each test runs it as a process of its own.

Standard output that cannot be written gives exit code 4. A file that cannot be written costs no
verdict. Nothing ends in a traceback.
"""

import fcntl
import json
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.sentences import two_sentences

ROOT = Path(__file__).parent.parent
PROGRAM = (sys.executable, "-m", "kvproof")
Ran = subprocess.CompletedProcess[bytes]

NOT_PRINTED = 4
"""The exit code where standard output is closed or full."""

NAMELESS = 54321
"""The number of a user without a name and without a home."""

TRACE = ROOT / "findings" / "impossible_fit_waits" / "trace.jsonl"

QUICK: tuple[tuple[str, ...], ...] = (
    ("explore", "--config", "oversized"),
    ("explore", "--config", "oversized", "--json"),
    ("explore", "--fault", "front_trim"),
    ("sample", "--config", "oversized", "--examples", "2", "--steps", "4"),
    ("prove", "--obligation", "trim_equal_counts"),
    ("replay", str(TRACE), "--machine", "model"),
    ("report", str(TRACE)),
    ("faults",),
    ("invariants",),
    ("configs",),
    ("remedies",),
    ("--help",),
    ("--version",),
)
"""Commands that print something within a second."""

CLUSTER = {
    "name": "名前",
    "engines": [{"name": "É", "groups": [{"kind": "full", "block_size": 2}]}],
    "jobs": [{"name": "r0é", "prompt": "é"}],
}


def environment(**changed: str | None) -> dict[str, str]:
    """The environment with these variables; None takes one out."""
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    new = {**os.environ, "PYTHONPATH": path, **changed}
    return {name: value for name, value in new.items() if value is not None}


def started(argv: Sequence[str], folder: Path, before: Sequence[str] = (), **options: Any) -> Ran:
    """Run the program to its end, by the command `before` if there is one."""
    options.setdefault("env", environment())
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    command = [*before, *PROGRAM, *argv]
    return subprocess.run(command, cwd=folder, check=False, timeout=120, **options)


def redirected(argv: Sequence[str], folder: Path, how: str) -> Ran:
    """Run the program as a shell does with this redirection."""
    command = ["sh", "-c", f'exec "$0" "$@" {how}', *PROGRAM, *argv]
    return subprocess.run(
        command, cwd=folder, check=False, timeout=120, env=environment(), capture_output=True
    )


def no_traceback(ran: Ran) -> None:
    for stream in (ran.stdout or b"", ran.stderr or b""):
        assert b"Traceback" not in stream, stream.decode()
        assert b"Exception ignored" not in stream, stream.decode()


def refused(ran: Ran, code: int = 2) -> str:
    """The message of a run that could not do what was asked: the last line on standard error."""
    no_traceback(ran)
    said = ran.stderr.decode().rstrip("\n").split("\n")[-1]
    assert ran.returncode == code, said
    assert two_sentences(said), said
    return said


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


@pytest.fixture
def nameless(tmp_path: Path) -> tuple[str, ...]:
    """The command that runs another as a user without a name, who owns the folder of the test. This
    user may read all files, because Python may lie in the folder of another user."""
    if os.getuid() != 0:
        pytest.skip("only root can become a user without a name")
    os.chown(tmp_path, NAMELESS, NAMELESS)
    reads = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    return users(f"--reuid={NAMELESS}", f"--regid={NAMELESS}", "--clear-groups", *reads)


# Standard output.


@pytest.mark.parametrize("argv", QUICK, ids=" ".join)
def test_a_full_standard_output(argv: tuple[str, ...], tmp_path: Path) -> None:
    said = refused(redirected(argv, tmp_path, ">/dev/full"), NOT_PRINTED)
    assert "standard output" in said.lower()


@pytest.mark.parametrize("argv", QUICK[::2], ids=" ".join)
def test_a_closed_standard_output(argv: tuple[str, ...], tmp_path: Path) -> None:
    said = refused(redirected(argv, tmp_path, ">&-"), NOT_PRINTED)
    assert "standard output" in said.lower()


def test_a_closed_output_is_noticed_before_the_work(tmp_path: Path) -> None:
    argv = ["explore", "--config", "oversized", "--checkpoint", "c", "--graph", "g.dot"]
    refused(redirected(argv, tmp_path, ">&-"), NOT_PRINTED)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("argv", QUICK[1::2], ids=" ".join)
def test_a_pipe_whose_reader_is_gone(argv: tuple[str, ...], tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ran = started(argv, tmp_path, stdout=writer)
    os.close(writer)
    no_traceback(ran)
    assert ran.returncode == NOT_PRINTED


@pytest.mark.parametrize("command", ["faults", "invariants", "configs"])
def test_a_reader_that_leaves_after_the_first_line(command: str, tmp_path: Path) -> None:
    with subprocess.Popen(
        [*PROGRAM, command],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        assert process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        code = process.wait(timeout=60)
    assert b"Traceback" not in said
    assert code == NOT_PRINTED


@pytest.mark.parametrize("how", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("explore", "--config", "oversized"), 0),
        (("explore", "--fault", "front_trim", "--json"), 1),
        (("sample", "--config", "oversized", "--examples", "2", "--steps", "4"), 0),
        (("explore", "--config", "nosuch"), 2),
        (("nosuch",), 2),
        (("faults",), 0),
        (("report", str(TRACE)), 0),
    ],
)
def test_a_standard_error_that_is_closed_or_full(
    argv: tuple[str, ...], code: int, how: str, tmp_path: Path
) -> None:
    ran = redirected(argv, tmp_path, how)
    assert ran.returncode == code
    assert bool(ran.stdout) == (code != 2)
    no_traceback(ran)


# Files that cannot be written.


def small_files() -> None:
    """As on a full disk: no file may be longer than 64 bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))


def test_a_trace_that_does_not_fit_on_the_disk(tmp_path: Path) -> None:
    ran = started(["explore", "--fault", "front_trim"], tmp_path, preexec_fn=small_files)
    said = refused(ran, 1)
    assert "cannot be written" in said
    assert ran.stdout.decode().count("VIOLATED") >= 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_json_output_has_the_verdict_where_the_trace_does_not_fit(tmp_path: Path) -> None:
    argv = ["explore", "--fault", "front_trim", "--json"]
    ran = started(argv, tmp_path, preexec_fn=small_files)
    refused(ran, 1)
    printed = json.loads(ran.stdout)
    assert (printed["verdict"], printed["exit_code"]) == ("VIOLATED", 1)
    assert printed["trace"] is None


@pytest.mark.parametrize(
    ("argv", "verdict"),
    [
        (("explore", "--config", "oversized", "--graph", "g.graphml"), "EXHAUSTED"),
        (("explore", "--config", "oversized", "--graph", "g.dot"), "EXHAUSTED"),
        (("explore", "--config", "oversized", "--checkpoint", "c"), "EXHAUSTED"),
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
        (("explore", "--fault", "front_trim"), 2),
        (("explore", "--config", "oversized", "--graph", "g.dot"), 2),
        (("explore", "--config", "oversized", "--checkpoint", "c"), 2),
        (("prove", "--obligation", "trim_equal_counts", "--table", "t.md"), 2),
        (("explore", "--config", "oversized"), 0),
        (("sample", "--config", "oversized", "--examples", "2", "--steps", "4"), 0),
        (("faults",), 0),
    ],
)
def test_a_read_only_folder(
    argv: tuple[str, ...], code: int, tmp_path: Path, bound: tuple[str, ...]
) -> None:
    """What must be written is refused before the work; all else is as in any folder."""
    tmp_path.chmod(0o555)
    ran = started(argv, tmp_path, bound)
    tmp_path.chmod(0o755)
    no_traceback(ran)
    assert ran.returncode == code
    if code == 2:
        refused(ran)
        assert ran.stdout == b""
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("option", ["--graph", "--checkpoint", "--traces"])
@pytest.mark.parametrize("path", ["file/x.dot", "missing/x.dot", "/dev/full", "/proc/x.dot"])
def test_an_output_that_cannot_be_made(option: str, path: str, tmp_path: Path) -> None:
    """This binds root too: a file where a folder is needed, a device, a folder of the kernel."""
    (tmp_path / "file").write_text("mine")
    if (option, path) == ("--traces", "missing/x.dot"):
        pytest.skip("a folder of traces is made")
    ran = started(["explore", "--config", "oversized", option, path], tmp_path)
    refused(ran)
    assert ran.stdout == b""
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "mine"


def test_a_run_leaves_nothing_but_its_outputs(tmp_path: Path) -> None:
    for argv in (QUICK[0], QUICK[3], QUICK[4], ("report", str(TRACE)), ("remedies",)):
        assert started(argv, tmp_path).returncode == 0
        assert [*tmp_path.iterdir()] == [], argv


def test_new_files_have_the_permissions_of_the_umask(tmp_path: Path) -> None:
    set_mask: Callable[[], object] = lambda: os.umask(0o027)  # noqa: E731
    argv = ["explore", "--config", "oversized", "--graph", "g.dot", "--checkpoint", "c"]
    assert started(argv, tmp_path, preexec_fn=set_mask).returncode == 0
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"g.dot": 0o640, "c": 0o640}


# The user, the locale, the width.


@pytest.mark.parametrize("argv", [("--version",), ("--help",), QUICK[0], ("gate", "--help")])
def test_a_user_without_a_name_and_a_home(
    argv: tuple[str, ...], tmp_path: Path, nameless: tuple[str, ...]
) -> None:
    """As `docker run --user 54321`."""
    nowhere = environment(HOME=None, XDG_CACHE_HOME=None)
    ran = started(argv, tmp_path, nameless, env=nowhere)
    no_traceback(ran)
    assert ran.returncode == 0
    assert ran.stdout


def test_a_cache_is_needed_and_there_is_no_home(tmp_path: Path, nameless: tuple[str, ...]) -> None:
    nowhere = environment(HOME=None, XDG_CACHE_HOME=None)
    ran = started(["releases", "--releases", "0.32.0"], tmp_path, nameless, env=nowhere)
    assert "--cache" in refused(ran)


POSIX = {"LANG": "C", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
ASCII = {**POSIX, "PYTHONIOENCODING": "ascii"}
LATIN = {"PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1:strict"}


@pytest.mark.parametrize("locale", [POSIX, ASCII, LATIN])
def test_names_that_the_locale_cannot_write(locale: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text(json.dumps(CLUSTER, ensure_ascii=False), encoding="utf-8")
    here = environment(**locale)
    for more, code in (((), 0), (("--fault", "double_free"), 1), (("--graph", "g.dot"), 0)):
        ran = started(["explore", "--config", "own.json", *more], tmp_path, env=here)
        no_traceback(ran)
        assert ran.returncode == code, ran.stderr.decode()
        assert (b"VIOLATED" if code else b"EXHAUSTED") in ran.stdout
    ran = started(["explore", "--config", "own.json", "--json"], tmp_path, env=here)
    assert ran.returncode == 0
    assert json.loads(ran.stdout)["config"]["name"] == CLUSTER["name"]
    assert "É" in (tmp_path / "g.dot").read_text(encoding="utf-8")


@pytest.mark.parametrize("locale", [POSIX, ASCII])
def test_a_message_that_the_locale_cannot_write(locale: dict[str, str], tmp_path: Path) -> None:
    ran = started(["explore", "--config", "名前"], tmp_path, env=environment(**locale))
    refused(ran)


@pytest.mark.parametrize("columns", ["20", "0", "1", "abc", "100000"])
def test_any_width(columns: str, tmp_path: Path) -> None:
    here = environment(COLUMNS=columns, LINES="abc")
    for argv in (("remedies",), ("report", str(TRACE)), ("explore", "--help")):
        ran = started(argv, tmp_path, env=here)
        no_traceback(ran)
        assert ran.returncode == 0, (argv, ran.stderr.decode())
        assert ran.stdout
        assert ran.stderr == b""
