"""One side of a comparison: `python -m kvproof.cli.gate_side`.

It imports the vLLM of its environment once, when the first request has come, which says what is
watched in it. Then each request is carried out in a fork of this process: so each begins in the
same state, and none ends the side.
"""

if __name__ == "__main__":  # before the imports, during which a signal may come
    from kvproof.cli import start

    start.program("kvproof.cli.gate_side")

import gc
import os
import select
import signal
import sys
import time
from itertools import chain
from typing import BinaryIO

import msgspec

from kvproof.gate.difference.protocol import Answer, InFork, Look, Request, failed
from kvproof.gate.side import requests
from kvproof.gate.source.probes import Probes
from kvproof.live import children

REQUEST_S = 60.0
"""The longest time that a request may take, in seconds."""

PIECE = 1 << 16


def main() -> int:
    """Answer the requests of standard input, a line each, until it ends."""
    children.end_with_parent()
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # vLLM may print
    first = sys.stdin.buffer.readline()
    if not first:
        return 0
    request = msgspec.json.decode(first, type=Request)
    probes = requests.probes(request.places if isinstance(request, Look) else {})
    seen = requests.look(probes)
    gc.freeze()  # what is there now is shared with all forks
    for line in chain([first], sys.stdin.buffer):
        request = msgspec.json.decode(line, type=Request)
        _send(out, seen if isinstance(request, Look) else _in_a_fork(request, probes))
    return 0


def _send(out: BinaryIO, answer: Answer) -> None:
    out.write(msgspec.json.encode(answer) + b"\n")
    out.flush()


def _in_a_fork(request: InFork, probes: Probes) -> Answer:
    """Carry a request out in a fork of this process. If the fork does not end in time, or ends
    without an answer, the answer is the reason."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reads)
        _child(request, probes, writes)
    os.close(writes)
    try:
        data, in_time = _read(reads)
    finally:
        os.close(reads)
        if not in_time:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    if data and status == 0:  # what ends early may have written a part
        answer: Answer = msgspec.json.decode(data, type=Answer)
        return answer
    why = (
        f"it ends with {os.waitstatus_to_exitcode(status)}"
        if in_time
        else f"it takes more than {REQUEST_S:.0f} s"
    )
    return failed(request, why)


def _child(request: InFork, probes: Probes, writes: int) -> None:
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with os.fdopen(writes, "wb") as out:
            out.write(msgspec.json.encode(requests.answer(request, probes)))
        code = 0
    finally:
        os._exit(code)


def _read(pipe: int) -> tuple[bytes, bool]:
    """Read all that comes through a pipe. The second value says whether the pipe ended in time."""
    parts: list[bytes] = []
    ends = time.monotonic() + REQUEST_S
    while (left := ends - time.monotonic()) > 0:
        if select.select([pipe], [], [], left)[0]:
            part = os.read(pipe, PIECE)
            if not part:
                return b"".join(parts), True
            parts.append(part)
    return b"", False
