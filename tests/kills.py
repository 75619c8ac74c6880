"""Kills of the program: SIGINT, SIGTERM and SIGKILL at chosen moments, and what must hold after."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tests import made_trees, signals

END_S = 60.0
"""A process that has not ended by then, in seconds, hangs: an idle machine needs less than one."""

UNWANTED = ("Traceback", "Exception ignored", "KeyboardInterrupt")

MADE_BEFORE = ("site", "base", "head")
"""Folders that are there before the kill."""

MIRROR = re.compile(r"cache/trees/[0-9a-f]{16}/")
"""A whole mirror of a tree, which stays in the cache. A part of one has another name."""

FAKE_PIP = """
import os, sys, time
if "install" in sys.argv:
    folder = sys.argv[sys.argv.index("--target") + 1]
    os.makedirs(folder)
    print("half", file=open(os.path.join(folder, "half"), "w"), flush=True)
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.2)
"""
"""A pip that never ends: the installation of a release is what is killed."""


TRACE = str(next(Path(__file__).parent.parent.glob("findings/*/trace.jsonl")))


class Kind(NamedTuple):
    """A command, and the exit code of one that ends by itself."""

    name: str
    command: tuple[str, ...]
    code: int = 0


KINDS = (
    Kind("explore", ("explore", "--config", "pd-default", "--states-max", "3000"), 3),
    Kind("sample", ("sample", "--examples", "100000")),
    Kind("prove", ("prove",)),
    Kind("releases", ("replay", TRACE, "--releases", "0.18.0", "--cache", "cache")),
    Kind("gate", made_trees.DIFFERENT, 3),
)
BY_NAME = {kind.name: kind for kind in KINDS}


class Killed(NamedTuple):
    """What a killed process left: its exit code (negative for SIGKILL), its output, and the time
    that it needed to end, in seconds."""

    code: int
    out: str
    err: str
    took_s: float


def environment(folder: Path) -> dict[str, str]:
    """The environment of the program, with the pip that never ends before all others."""
    site = folder / "site"
    if not site.exists():
        (site / "pip").mkdir(parents=True)
        (site / "pip" / "__init__.py").touch()
        (site / "pip" / "__main__.py").write_text(FAKE_PIP, encoding="utf-8")
    found = [str(site), *(path for path in sys.path if path)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(found)}


def started(folder: Path, *command: str) -> "subprocess.Popen[str]":
    """The program, in a session of its own, so that signals reach nothing else."""
    return subprocess.Popen(
        [sys.executable, "-m", "kvproof", *command],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=signals.as_in_a_terminal,
    )


def killed(folder: Path, kind: Kind, number: signal.Signals, after_s: float) -> Killed:
    """Start a command with --json, and send it a signal this time after its handlers are set. What
    comes before, some 30 ms, is the start of Python itself."""
    if kind.name == "gate":
        made_trees.base_and_head(folder, begins="import time\ntime.sleep(30)\n")
    process = started(folder, *kind.command, "--json")
    while not _handles(process.pid) and process.poll() is None:
        time.sleep(0.001)
    time.sleep(after_s)
    begin = time.monotonic()
    process.send_signal(number)
    try:
        out, err = process.communicate(timeout=END_S)
    finally:
        process.kill()
    return Killed(process.returncode, out, err, time.monotonic() - begin)


def _handles(pid: int) -> bool:
    """Whether a process has a handler for SIGTERM."""
    lines = Path("/proc", str(pid), "status").read_text(encoding="utf-8").splitlines()
    caught = next((line.split()[1] for line in lines if line.startswith("SigCgt")), "0")
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def check(folder: Path, kind: Kind, number: signal.Signals, end: Killed) -> None:
    """What holds after each kill: the exit code is that of the signal, or the command had already
    ended; no traceback; one whole object or nothing on standard output; no half-written file."""
    left = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    left = [path for path in left if path.parts[0] not in (*MADE_BEFORE, ".hypothesis")]
    left = [path for path in left if not MIRROR.match(str(path))]
    context = f"{kind.name} {number.name} {end._replace(out=end.out[-300:])} {left}"
    if number is signal.SIGKILL:
        assert end.code in (-number, kind.code), context
    else:
        assert end.code in (128 + number, kind.code), context
        assert not any(word in end.err for word in UNWANTED), context
    if end.out:
        record = json.loads(end.out)
        assert record["exit_code"] == end.code, context
        if end.code != kind.code:
            assert record["verdict"] in ("UNKNOWN", "VIOLATED"), context
            assert "interrupted" in json.dumps(record), context
    if number is not signal.SIGKILL:
        assert not left, context
        assert not _processes(folder), context
    assert not (folder / "cache" / "vllm" / "0.18.0").exists(), context


def _processes(folder: Path) -> list[str]:
    """The command lines of processes that work in a folder, or name a file in it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = entry.joinpath("cmdline").read_bytes().decode(errors="replace").split("\0")
            words.append(os.readlink(entry / "cwd"))
        except OSError:
            continue
        if any(word.startswith(str(folder)) for word in words):
            found.append(" ".join(words))
    return found
