"""Runs a case in a forked child, so that kvproof is imported only once."""

import atexit
import importlib
import io
import os
import pkgutil
import resource
import runpy
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from tests.fuzz import folders, users
from tests.fuzz.case import Case

ROOT = Path(__file__).parents[2]

HANG_S = 300.0
"""The time after which a run counts as hanging, in seconds. An idle machine needs less than one."""

ADDRESSES_MIB = 2048
"""Further memory that a child may ask for, in MiB: a wild allocation fails instead of swapping."""

FILE_MIB = 256
"""The largest file that a child may write, in MiB."""

NO_SOUND_IMPORT = (
    *("kvproof.live", "kvproof.connectors", "kvproof.testing", "kvproof.watch", "kvproof.gate"),
    "kvproof.reports.heat_picture",
)
"""Modules that are not imported before a run: they import vLLM, torch or matplotlib."""


class Ended(NamedTuple):
    """How a run ended. `code` is None if it was killed because it hung; a negative one is that of
    a signal. `problems` are what it did to the files of its folder."""

    code: int | None
    stdout: bytes
    stderr: bytes
    seconds: float
    memory_mib: float
    problems: tuple[str, ...]
    kept: Path | None = None


def load() -> None:
    """Import all of kvproof that has no threads, once for all children."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy would start threads, which a fork loses
    import kvproof

    for module in pkgutil.walk_packages(kvproof.__path__, "kvproof."):
        if not module.name.startswith(NO_SOUND_IMPORT) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    import kvproof.strategies.sampling.stateful

    assert len(os.listdir("/proc/self/task")) == 1, "a fork would lose a thread"


def run(case: Case, *, keep: bool = False) -> Ended:
    """Run a case in a fresh folder, which is removed unless it is kept."""
    root = Path(tempfile.mkdtemp(prefix="kvproof-fuzz-"))
    here = Path.cwd()
    try:
        folders.make(root, case)
        os.chdir(here)
        user = _user(case)
        if user == "nameless" and os.getuid() == 0:
            users.give(root)
        before = folders.snapshot(root)
        (root / "streams").mkdir()
        code, seconds, memory = _ended(root, case.more(user=user))
        streams = [(root / "streams" / name).read_bytes() for name in ("out", "err")]
        shutil.rmtree(root / "streams")
        refused = code == 2 and not streams[0]
        problems = tuple(folders.damage(root, before, case, refused))
    finally:
        os.chdir(here)
        if not keep:
            shutil.rmtree(root, ignore_errors=True)
    kept = root if keep else None
    return Ended(code, streams[0], streams[1], seconds, memory, problems, kept)


def _user(case: Case) -> str:
    """The user of a case. One that names paths elsewhere may not write there: it runs as a user who
    owns its folder and nothing else."""
    variables = [value for value in case.environment.values() if value is not None]
    named = (*case.argv, *variables)
    outside = any(text.startswith("/") or ".." in text for text in named)
    return "nameless" if outside else case.user


def _ended(root: Path, case: Case) -> tuple[int | None, float, float]:
    """Fork, wait, and kill what hangs. Gives the exit code, seconds and MiB."""
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        _child(root, case)
    watched = os.pidfd_open(child)
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    hangs = not poll.poll(HANG_S * 1000)
    if hangs:
        os.kill(child, signal.SIGKILL)
    os.close(watched)
    _, status, used = os.wait4(child, 0)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    code = None if hangs else os.waitstatus_to_exitcode(status)
    return code, time.monotonic() - begin, used.ru_maxrss / 1024


def _child(root: Path, case: Case) -> NoReturn:
    """The run itself. Never returns to the code of the parent."""
    code = 70
    try:
        os.setsid()
        (root / "streams" / "out").touch()
        (root / "streams" / "err").touch()
        _limit()
        _streams(root, case)
        os.chdir(root / "work")
        os.environ.clear()
        os.environ.update(environment(root, case))
        if case.user:
            {"bound": users.bound, "nameless": users.nameless}[case.user]()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if case.process:
            code = subprocess.run([sys.executable, "-m", "kvproof", *case.argv]).returncode
        else:
            code = _called(root, case)
    except BaseException:
        with suppress(BaseException):
            traceback.print_exc()
    finally:
        os._exit(code & 0xFF)


def _limit() -> None:
    """Limits that a run should not meet."""
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[0])
    most = pages * resource.getpagesize() + ADDRESSES_MIB * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_MIB * 1024 * 1024,) * 2)


def _streams(root: Path, case: Case) -> None:
    """The standard streams, as a shell would open them."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name, kind in ((1, "out", case.stdout), (2, "err", case.stderr)):
        path = "/dev/full" if kind == "full" else str(root / "streams" / name)
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)
        if kind == "closed":
            os.close(number)
    # As Python does at its start: a stream whose descriptor is closed is None.
    errors = "surrogateescape" if case.encoding == "ascii" else "strict"
    sys.stdout = sys.__stdout__ = _text(1, case, errors)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _text(2, case, "backslashreplace")  # type: ignore[misc]
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.FileIO(0, closefd=False))  # type: ignore[misc]


def _text(number: int, case: Case, errors: str) -> Any:
    if (case.stdout, case.stderr)[number - 1] == "closed":
        return None
    raw = io.FileIO(number, "w", closefd=False)
    buffer = io.BufferedWriter(raw)
    return io.TextIOWrapper(buffer, case.encoding, errors, line_buffering=number == 2)


def environment(root: Path, case: Case) -> dict[str, str]:
    """The environment of a run: that of a plain shell, changed by the case. `{root}` in a value is
    the folder that has the working folder and the home folder."""
    plain = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(root / "home"),
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
    }
    changed = plain | dict(case.environment)
    return {
        name: value.replace("{root}", str(root))
        for name, value in changed.items()
        if value is not None
    }


def _called(root: Path, case: Case) -> int:
    """Run the program as `python -m` does, and end as the interpreter would."""
    if case.vllm is None:
        sys.modules["vllm"] = None  # type: ignore[assignment]
    else:
        sys.path.insert(0, str(root / "fake"))
    importlib.invalidate_caches()
    sys.executable = "/bin/false"  # no case starts pip, or a survey of a real vLLM
    sys.argv = ["kvproof", *case.argv]
    sys.modules.pop(case.program, None)  # else runpy warns
    try:
        result = runpy.run_module(case.program, run_name="__main__") and 0
    except SystemExit as exit_:
        result = exit_.code
    except BaseException:
        traceback.print_exc()
        result = 1
    if isinstance(result, str):
        print(result, file=sys.stderr)
        result = 1
    atexit._run_exitfuncs()
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(Exception):
            traceback.print_exc()
        return 120  # as the interpreter does
    return int(result or 0)
