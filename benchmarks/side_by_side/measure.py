"""Runs a command in a separate process, and measures its time and peak memory."""

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Failed(Exception):
    """A command ended with an error."""


class Process(NamedTuple):
    """What a command printed, its seconds from start to end, and its peak memory in MiB."""

    output: str
    seconds: float
    peak_mib: float


class Run(NamedTuple):
    """A search by a tool: distinct states, seconds of the search and of the whole process, and
    peak memory in MiB."""

    states: int
    search_seconds: float
    process_seconds: float
    peak_mib: float


def measured(command: Sequence[str | Path], folder: Path | None = None) -> Process:
    """Run a command to its end. Raises `Failed`, with the output of the command, if it fails."""
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    if process.returncode:
        shown = " ".join(map(str, command))
        raise Failed(f"{shown} ended with {process.returncode}:\n{text[-2000:]}")
    return Process(text, seconds, usage.ru_maxrss / 1024)
