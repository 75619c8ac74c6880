"""A kill of an engine that has a process of its own."""

import os
import threading
import time
from typing import Any

from tests.engine.ordinary import work

REQUESTS = 600
"""More than are served before the kill."""


def killed(llm: Any, number: int, after_s: float) -> int | None:
    """Send a signal to the engine's process while it works. Returns its exit code, negative for a
    signal. Whoever waits for an answer of an engine that was killed may wait for ever."""
    [process] = llm.llm_engine.engine_core.resources.engine_manager.processes
    threading.Thread(target=_work, args=(llm,), daemon=True).start()
    time.sleep(after_s)
    os.kill(process.pid, number)
    process.join(60)
    code: int | None = process.exitcode
    return code


def _work(llm: Any) -> None:
    try:
        work(llm, 0, REQUESTS)
    except Exception as error:
        print(f"the work ended: {type(error).__name__}")
