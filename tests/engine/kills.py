"""Kills of processes with an engine. A program may wait for ever for the answer of an engine that
was killed, so its end is not waited for."""

import os
import threading
import time
from typing import Any

from tests.engine.ordinary import work

REQUESTS = 600
"""More than are served before the kill."""

END_S = 60


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
