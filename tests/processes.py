"""The program as a process of its own, and what every end of it must be."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.sentences import two_sentences

ROOT = Path(__file__).parent.parent
PROGRAM = (sys.executable, "-m", "kvproof")
Ran = subprocess.CompletedProcess[bytes]

TRACE = ROOT / "findings" / "impossible_fit_waits" / "trace.jsonl"

QUICK: tuple[tuple[str, ...], ...] = (
    ("explore", "--config", "oversized"),
    ("explore", "--config", "oversized", "--json"),
    ("explore", "--fault", "front_trim"),
    ("sample", "--config", "oversized", "--examples", "2", "--steps", "4"),
    ("prove", "--obligation", "trim_equal_counts"),
    ("replay", str(TRACE), "--machine", "model"),
    ("report", str(TRACE)),
    ("explain", "invariants"),
    ("explain", "configs"),
    ("--help",),
    ("--version",),
)
"""Commands that print something within a second."""


def environment(**changed: str | None) -> dict[str, str]:
    """The environment with these variables; None takes one out."""
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    new = {**os.environ, "PYTHONPATH": path, **changed}
    return {name: value for name, value in new.items() if value is not None}


def started(argv: Sequence[str], folder: Path, before: Sequence[str] = (), **options: Any) -> Ran:
    """Run the program to its end, by the command `before` if there is one."""
    options.setdefault("env", environment())
    options.setdefault("timeout", 600)
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    command = [*before, *PROGRAM, *argv]
    return subprocess.run(command, cwd=folder, check=False, **options)


def python(
    *words: object, cwd: Path | None = None, first: Sequence[Path] = (), **variables: str | None
) -> "subprocess.CompletedProcess[str]":
    """Run Python with these words to its end; its output is text. The packages of the folders
    `first` come before all others. `variables` are of the environment, and None takes one out."""
    path = os.pathsep.join(map(str, (*first, ROOT / "src", ROOT)))
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env=environment(PYTHONPATH=path, **variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


def redirected(argv: Sequence[str], folder: Path, how: str) -> Ran:
    """Run the program as a shell does with this redirection."""
    return started(argv, folder, ("sh", "-c", f'exec "$0" "$@" {how}'))


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
