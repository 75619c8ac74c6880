"""A real engine in a process of its own, and what it answers.

    with Process(folder, mode="raise") as process:
        process.take(["engine", "full", OPTIONS])
        answer = process.take(["add", "r0", prompt, {"max_tokens": 8}], ["run"])
    process.log  # standard error, with what the sanitizer printed

The actions are the methods of `tests.engine.runner.Runner`. The sanitizer is switched on by the
environment variable alone, as a user does it.
"""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parent.parent.parent

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}

OPTIONS: dict[str, Any] = {
    "block_size": 32,
    "disable_log_stats": False,
    "dtype": "float32",
    "enable_prefix_caching": True,
    "max_model_len": 256,
    "max_num_batched_tokens": 256,
    "max_num_seqs": 4,
    "seed": 0,
}
"""Of an engine on the CPU."""


@dataclass(frozen=True)
class Output:
    """The answer to one request. `transfer` are its kv_transfer_params."""

    tokens: list[int]
    cached: int
    reason: str
    transfer: dict[str, Any] | None


@dataclass(frozen=True)
class Answer:
    """What the process answers to some actions. `results` has the result of each action that was
    taken, `error` the exception that ended them."""

    outputs: dict[str, Output]
    results: list[Any]
    error: str | None
    seconds: float


class Process:
    """The process. `mode` is the value of KVPROOF, None for none. It inherits the environment
    `inherited`, or that of this process. `log` is its standard error."""

    def __init__(
        self,
        models: Path,
        *,
        mode: str | None = None,
        several: bool = False,
        environment: Mapping[str, str] | None = None,
        inherited: Mapping[str, str] | None = None,
        limit_s: float = 900,
    ) -> None:
        inherited = {k: v for k, v in (inherited or os.environ).items() if k != "KVPROOF"}
        paths = [str(ROOT / "src"), str(ROOT), inherited.get("PYTHONPATH", "")]
        self.environment = {
            **inherited,
            **ENVIRONMENT,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "VLLM_ENABLE_V1_MULTIPROCESSING": str(int(several)),
            **({"KVPROOF": mode} if mode is not None else {}),
            **(environment or {}),
        }
        self.models = models
        self.limit_s = limit_s
        self.log = ""
        self.returncode: int | None = None
        self._left = b""

    def __enter__(self) -> "Process":
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.engine.runner", str(self.models)],
            cwd=self.models,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # so that it can be ended with all that it has started
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            if error is None:
                self._wait()
        finally:
            end_group(self._process.pid)
            self.returncode = self._process.wait()
            self._process.stdout.close()
            self.log = self.printed()
            self._errors.close()

    def take(self, *actions: list[Any], limit_s: float | None = None) -> Answer:
        """Let the process take some actions. An action that raises ends them; see `error`."""
        self.send(*actions)
        return self.receive(limit_s)

    def served(self, *actions: list[Any]) -> Answer:
        """Let the process take some actions, none of which may raise."""
        answer = self.take(*actions)
        assert answer.error is None, answer.error
        return answer

    def send(self, *actions: list[Any]) -> None:
        """Let the process begin to take some actions."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # that it has ended is seen in the answer
            self._process.stdin.write(json.dumps(actions).encode() + b"\n")
            self._process.stdin.flush()

    def receive(self, limit_s: float | None = None) -> Answer:
        """The answer to the actions that were sent first."""
        answer = json.loads(self._line(limit_s or self.limit_s))
        outputs = {name: Output(**each) for name, each in answer.pop("outputs").items()}
        return Answer(outputs, **answer)

    def _line(self, limit_s: float) -> bytes:
        assert self._process.stdout is not None
        ends = time.monotonic() + limit_s
        while b"\n" not in self._left:
            ready, _, _ = select.select([self._process.stdout], [], [], ends - time.monotonic())
            more = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
            if not more:
                why = "ended" if ready else f"did not answer in {limit_s} seconds"
                raise AssertionError(f"The engine's process {why}:\n{self.printed()[-5000:]}")
            self._left += more
        line, _, self._left = self._left.partition(b"\n")
        return line

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def _wait(self) -> None:
        """Wait until the process has ended. It is not reaped, so its id stays its own."""
        ends = time.monotonic() + self.limit_s
        how = os.WEXITED | os.WNOWAIT | os.WNOHANG
        while os.waitid(os.P_PID, self._process.pid, how) is None:
            assert time.monotonic() < ends, f"The process did not end:\n{self.printed()[-5000:]}"
            time.sleep(0.05)

    def printed(self) -> str:
        """What the process has printed so far on standard error."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    @property
    def judged(self) -> dict[str, int]:
        """How often the sanitizer judged each invariant, from its summary."""
        assert self.returncode is not None, "the summary comes when the process ends"
        found: dict[str, int] = {}
        for line in re.findall(r"kvproof: judged: (.*)", self.log):
            for name, times in re.findall(r"(\w+) ([\d,]+)(?:, |$)", line):
                found[name] = found.get(name, 0) + int(times.replace(",", ""))
        return found

    @property
    def complaints(self) -> list[str]:
        """All that the sanitizer printed that is not good."""
        said = re.findall(r"kvproof: (.*)", self.log)
        wrong = ("VIOLATED", "UNKNOWN", "not watched")
        return [line for line in said if any(word in line for word in wrong)]


def end_group(group: int) -> None:
    """End a process and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
