"""A side of a comparison, as the parent sees it: a process that drives one vLLM."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from kvproof.gate.difference.protocol import (
    Accepts,
    Answer,
    AskAccepts,
    Drive,
    Driven,
    Look,
    OfFile,
    OfFileDone,
    Recorded,
    RecordRun,
    Request,
    Seen,
)
from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import Workload
from kvproof.gate.source.statements import Places
from kvproof.live import children
from kvproof.live.reproducer.choosing import Observed
from kvproof.live.reproducer.running import RanFile
from kvproof.model import interruption

Kind = TypeVar("Kind", Seen, Driven, Recorded, Accepts, OfFileDone)

PROGRAM = "kvproof.cli.gate_side"

END_S = 5.0
"""The longest time between the end of a process's output and its own end, in seconds."""


DEFECT = "This is a defect of kvproof"
"""How the line begins that a program of kvproof prints after a traceback."""


class Ended(Exception):
    """The process has ended. The message is the last line that it printed."""


class Side:
    """A running process that drives one vLLM. Used by one thread at a time."""

    def __init__(self, process: "subprocess.Popen[bytes]", errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors

    def look(self, places: Places) -> Seen:
        """What can be driven. `places` are those that `reach` is about from now on. Raises
        Ended."""
        return self._answer(Look({file: dict(of) for file, of in places.items()}), Seen)

    def drive(self, workloads: Sequence[Workload], **how: Any) -> list[Result]:
        """The results of workloads, driven as the fields of `Drive` say. Raises Ended."""
        return [self._answer(Drive(one, **how), Driven).result for one in workloads]

    def accepts(self, connector: str) -> Accepts:
        """The cache groups that a connector accepts. Raises Ended."""
        return self._answer(AskAccepts(connector), Accepts)

    def record(self, request: RecordRun) -> Recorded:
        """Write a trace. Raises Ended."""
        return self._answer(request, Recorded)

    def observed(self, file: Path) -> Observed:
        """What is seen after each statement of a generated file. Raises Ended."""
        return self._answer(OfFile(str(file.resolve())), OfFileDone).observed

    def tested(self, file: Path) -> RanFile:
        """The outcome of a generated file with pytest. Raises Ended."""
        return self._answer(OfFile(str(file.resolve()), tested=True), OfFileDone).tested

    def _answer(self, request: Request, kind: type[Kind]) -> Kind:
        interruption.check()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(msgspec.json.encode(request) + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = b""
        if not line:
            interruption.check()
            raise Ended(self._last_line())
        answer: Answer = msgspec.json.decode(line, type=Answer)
        assert isinstance(answer, kind)
        return answer

    def _last_line(self) -> str:
        with suppress(subprocess.TimeoutExpired):  # it may just have closed its output
            self._process.wait(timeout=END_S)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="backslashreplace").split("\n")
        printed = [line.strip() for line in lines if line.strip()]
        last = next((line for line in reversed(printed) if not line.startswith(DEFECT)), "")
        return last or f"the process ended with {self._process.poll()}"


ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Each request is carried out in a fork, where the threads of OpenMP are no more."""

HASH_SEED = "PYTHONHASHSEED"
"""In which order vLLM reads the names in a set depends on this seed, and so does which of several
requests ends first. vLLM makes the first hash of blocks from it too: without it, older releases
and fast hashes make a random one, so keys in a set have any order. Both sides have one seed, so
that they differ by their code alone."""


@contextmanager
def started(environment: Mapping[str, str]) -> Iterator[Side]:
    """A side in a process with this environment. It ends with the body, or with kvproof."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", PROGRAM],
            env={
                **environment,
                **ONE_THREAD,
                HASH_SEED: "0",
                children.PARENT: str(os.getpid()),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # Ctrl-C of the terminal reaches kvproof alone, which ends it
        )

        def end() -> None:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)

        try:
            yield Side(process, errors)
        finally:
            end()
            process.communicate()
