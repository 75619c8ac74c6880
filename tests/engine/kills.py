"""Kills of processes with an engine. A program may wait for ever for the answer of an engine that
was killed, so its end is not waited for."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.engine.models import folder
from tests.engine.ordinary import work

REQUESTS = 600
"""More than are served before the kill."""

END_S = 60


ASK_S = 0.2
"""A watched fork is asked for a record so often, and just before the kill."""


def in_fork(_llm: Any, models: str, options: dict[str, Any], number: int, after_s: float) -> int:
    """Send a signal to a fork of this process, so long after the first request of its engine. If
    it is watched, it is at work on a record then. Returns its exit code, negative for a signal."""
    path = folder("full", Path(models))
    import vllm  # noqa: F401 - once for all forks

    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(theirs, str(path), options))
    process.start()
    mine.recv()
    if "KVPROOF" in os.environ:
        ends = time.monotonic() + after_s
        while (left := ends - time.monotonic()) > 0:
            time.sleep(min(left, ASK_S))
            os.kill(process.pid, signal.SIGUSR2)
        after_s = after_s % ASK_S / 20  # some part of the time that a record takes
    return _killed(process, number, after_s)


def _serve(begins: Any, path: str, options: dict[str, Any]) -> None:
    from vllm import LLM

    llm = LLM(model=path, skip_tokenizer_init=True, enforce_eager=True, **options)
    # SIGINT raises an exception wherever the process is, and SIGTERM another one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    begins.send(True)
    work(llm, 0, REQUESTS)


def in_engine_core(llm: Any, number: int, after_s: float) -> int:
    """Send a signal to the engine core of vLLM, which has a process of its own."""
    [process] = llm.llm_engine.engine_core.resources.engine_manager.processes
    threading.Thread(target=_work, args=(llm,), daemon=True).start()
    return _killed(process, number, after_s)


def _work(llm: Any) -> None:
    try:
        work(llm, 0, REQUESTS)
    except Exception as error:
        print(f"the work ended: {type(error).__name__}")


def _killed(process: Any, number: int, after_s: float) -> int:
    time.sleep(after_s)
    os.kill(process.pid, number)
    ends = time.monotonic() + END_S
    code: int | None = None
    while code is None and time.monotonic() < ends:  # a thread of vLLM waits for the process, too
        process.join(0.1)
        code = process.exitcode
    if code is None:
        process.kill()
        raise TimeoutError(f"the process did not end in {END_S} seconds")
    return code
