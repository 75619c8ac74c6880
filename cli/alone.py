"""The run of a finding once more, in a process in which no episode came before it.

What an episode leaves in vLLM's modules, the next ones find there. A finding that shows only after
others is told with that.
"""

import os
import select
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from kvproof.model.config import Cluster
from kvproof.model.machine import Machine
from kvproof.model.traces.trace import Trace, write_in
from kvproof.model.traces.trace_reader import read
from kvproof.strategies.conformance.replay import replay
from kvproof.strategies.verdict import Verdict

ANSWER_S = 60.0
"""The longest time that the run may take, in seconds."""

NEEDS_EARLIER = (
    "Alone, in a fresh process, this run does not break the check: it needs what earlier episodes "
    "left in vLLM."
)


class Alone:
    """A fork of this process from before the first episode. It waits for one run."""

    def __init__(self, make: Callable[[Cluster], Machine]) -> None:
        self._make = make
        self.ended = False
        self._pid = 0
        self._asks = self._answers = -1

    def __enter__(self) -> Self:
        asked, self._asks = os.pipe()
        self._answers, answered = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._asks)
            os.close(self._answers)
            self._wait(asked, answered)
        os.close(asked)
        os.close(answered)
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        os.close(self._asks)
        os.close(self._answers)
        self.ended = os.waitpid(self._pid, 0)[0] == self._pid

    def shows(self, trace: Trace) -> bool | None:
        """Whether the run of a trace shows its finding alone; None where that cannot be told. It
        may be asked once."""
        with tempfile.TemporaryDirectory(prefix="kvproof-alone-") as folder:
            path = write_in(Path(folder), "alone", trace)
            os.write(self._asks, os.fsencode(path))
            if not select.select([self._answers], [], [], ANSWER_S)[0]:
                os.kill(self._pid, signal.SIGKILL)
            answer = os.read(self._answers, 1)
        return {b"y": True, b"n": False}.get(answer)

    def _wait(self, asked: int, answered: int) -> None:
        """Replay the one run that is asked for. This never returns."""
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the process that asks
            path = os.read(asked, 4096)
            if path:
                trace = read(Path(os.fsdecode(path)))
                found = replay(self._make(trace.cluster), trace).outcome.verdict
                os.write(answered, b"y" if found is Verdict.VIOLATED else b"n")
        finally:
            os._exit(0)
