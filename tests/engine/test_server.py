"""vLLM's server with the sanitizer: what stands in its terminal while it serves, and at its end."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from kvproof.watch.run import parts
from tests.engine.models import folder
from tests.engine.pair import free_port
from tests.engine.planting import MISTAKE, environment
from tests.engine.process import ENVIRONMENT, end_group
from tests.engine.workloads import FIRST

pytestmark = [pytest.mark.live, pytest.mark.engine, pytest.mark.nightly]

LIMIT_S = 600.0
OPTIONS = {
    "block-size": 32,
    "dtype": "float32",
    "host": "127.0.0.1",
    "max-model-len": 256,
    "num-gpu-blocks-override": 16,
    "served-model-name": "tiny",
}


class Server:
    """`vllm serve` with a tiny model. `log` is what stands in its terminal."""

    def __init__(self, parent: Path, mode: str, mistake: str = "", **options: Any) -> None:
        self.port = free_port()
        self._folder = parent
        model = folder("full", parent)
        values = OPTIONS | {"model": model, "port": self.port} | options
        words = [word for name, value in values.items() for word in (f"--{name}", str(value))]
        module = "vllm.entrypoints.openai.api_server"
        flags = ("--enforce-eager", "--skip-tokenizer-init")
        self.command = [sys.executable, "-m", module, *flags, *words]
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("KVPROOF")}
        planted = environment(parent / "plugin") | {MISTAKE: mistake}
        self.environment = inherited | ENVIRONMENT | planted | {"KVPROOF": mode}

    def __enter__(self) -> "Server":
        self._output = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self.command,
            cwd=self._folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        ends = time.monotonic() + LIMIT_S
        while not self._is_ready():
            assert self._process.poll() is None, self.log
            assert time.monotonic() < ends, self.log
            time.sleep(0.2)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        end_group(self._process.pid)
        self._process.wait()
        self._output.close()

    def _is_ready(self) -> bool:
        try:
            self._ask("health")
        except OSError:
            return False
        return True

    def _ask(self, path: str, body: Any = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{path}", data, headers)
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            answered: bytes = answer.read()
        return answered

    def serve(self, times: int) -> None:
        """Answer the same prompt several times, one after the other."""
        body = {"model": "tiny", "prompt": FIRST, "max_tokens": 4, "ignore_eos": True}
        for _ in range(times):
            answer = json.loads(self._ask("v1/completions", body | {"detokenize": False}))
            assert answer["usage"]["completion_tokens"] == 4

    @property
    def log(self) -> str:
        """All of its terminal so far."""
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    @property
    def said(self) -> list[str]:
        """The lines of the sanitizer in it."""
        return re.findall(r"kvproof: (.*)", self.log)

    @property
    def cores(self) -> list[int]:
        """The ids of its engine cores that are watched."""
        return [int(pid) for pid in re.findall(r"watching engine 1 of \S+, pid (\d+)", self.log)]

    def settle(self) -> None:
        """Wait until its engine cores are idle, and all that they have judged is on disk."""
        ends = time.monotonic() + LIMIT_S
        while not self._is_saved():
            assert time.monotonic() < ends, self.log
            time.sleep(0.5)

    def _is_saved(self) -> bool:
        [run] = (self._folder / "plugin" / "records").glob("run-*")
        found = [(each.steps, each.saved.numbers["watched"].get("steps")) for each in parts(run)]
        return bool(found) and all(steps == saved for steps, saved in found)

    def end(self, number: int) -> None:
        """Send it a signal, and wait until it has ended."""
        self._process.send_signal(number)
        self.wait()

    def wait(self) -> None:
        """Wait until it has ended."""
        self._process.wait(LIMIT_S)


def verdict(lines: list[str]) -> tuple[int, str]:
    """The one verdict, and its place among the lines."""
    [at] = [n for n, line in enumerate(lines) if re.search(r" in [\d,]+ steps of \d ", line)]
    return at, lines[at]


def test_a_finding_is_in_the_terminal_while_the_server_serves(tmp_path: Path) -> None:
    with Server(tmp_path, "warn", "hit_is_not_counted") as server:
        server.serve(3)
        before = server.said
        found = [line for line in before if line.startswith("VIOLATED references_are_exact ")]
        assert found, before
        record = found[0].partition("; record: ")[2]
        assert Path(record).exists()
        server.end(signal.SIGTERM)  # at which it kills its engine core
        lines = server.said[len(before) :]
    at, said = verdict(lines)
    assert re.fullmatch(r"\d violations, found \d+ times, in \d+ steps of 1 engine", said)
    assert f"record: {record}" in lines[at:]


@pytest.mark.parametrize("options", [{}, {"data-parallel-size": 2}])
def test_a_server_whose_idle_cores_are_killed_says_the_whole_verdict(
    options: dict[str, Any], tmp_path: Path
) -> None:
    engines = options.get("data-parallel-size", 1)
    with Server(tmp_path, "raise", **options) as server:
        server.serve(2 * engines)
        assert len(server.cores) == engines
        before = server.said
        server.settle()
        for core in server.cores:
            os.kill(core, signal.SIGKILL)
        server.wait()
        lines = server.said[len(before) :]
    _, said = verdict(lines)
    engine = "engine" if engines == 1 else "engines"
    assert re.fullmatch(rf"no violation in \d+ steps of {engines} {engine}", said), lines
    about_runs = [line for line in lines if not line.startswith("had nothing to judge: ")]
    assert not [line for line in about_runs if "UNKNOWN" in line or "lost" in line]
    assert not list((tmp_path / "plugin" / "records").glob("*"))
