"""cvc5 in a process of its own.

While cvc5 runs, no other code of its process does, so Ctrl-C would wait for its answer. Here the
process is ended instead. One process answers one certificate after another; a line of JSON goes in,
and a line of JSON comes out.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import msgspec

from kvproof.strategies.symbolic.cross import UNKNOWN, Opinion, second_opinion


class Asked(msgspec.Struct, frozen=True):
    """One certificate for cvc5, and its time limit in seconds."""

    text: str
    timeout_s: float


class Other:
    """The process with cvc5. It is started again if cvc5 crashes."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def second_opinion(self, text: str, timeout_s: float) -> Opinion:
        """The answer of cvc5 to a certificate, as `cross.second_opinion`; UNKNOWN if cvc5
        crashes."""
        process = self.process = self.process or _started()
        try:
            _pipe(process.stdin).write(msgspec.json.encode(Asked(text, timeout_s)) + b"\n")
            _pipe(process.stdin).flush()
            line = _pipe(process.stdout).readline()
        except BrokenPipeError:
            line = b""
        if line:
            return msgspec.json.decode(line, type=Opinion)
        self.end()
        return Opinion(UNKNOWN, f"cvc5 crashed ({process.returncode})", {}, 0.0)

    def end(self) -> None:
        """End the process, also in the middle of an answer."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


@contextmanager
def other() -> Iterator[Other]:
    """A process with cvc5, ended afterwards."""
    one = Other()
    try:
        yield one
    finally:
        one.end()


def _started() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "kvproof.strategies.symbolic.cross_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,  # Ctrl-C of the terminal reaches only this process, which ends it
    )


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def answer(questions: IO[bytes], answers: IO[bytes]) -> None:
    """Answer certificates until there are no more."""
    for line in questions:
        asked = msgspec.json.decode(line, type=Asked)
        opinion = second_opinion(asked.text, asked.timeout_s)
        answers.write(msgspec.json.encode(opinion) + b"\n")
        answers.flush()


if __name__ == "__main__":
    answer(sys.stdin.buffer, sys.stdout.buffer)
