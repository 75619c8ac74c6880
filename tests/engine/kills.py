"""The process of an engine, for those who kill it."""

import os
from typing import Any


def pid(llm: Any) -> int:
    """The id of the process in which the scheduler of an engine runs."""
    resources = getattr(llm.llm_engine.engine_core, "resources", None)
    if resources is None:
        return os.getpid()
    [process] = resources.engine_manager.processes
    return int(process.pid)
