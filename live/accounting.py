"""vLLM's accounting modules, and which of their lines a run executed."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import coverage

FILES = (
    "v1/core/sched/scheduler.py",
    "v1/core/sched/async_scheduler.py",
    "v1/core/sched/request_queue.py",
    "v1/core/kv_cache_manager.py",
    "v1/core/kv_cache_coordinator.py",
    "v1/core/single_type_kv_cache_manager.py",
    "v1/core/block_pool.py",
    "v1/core/kv_cache_utils.py",
    "distributed/kv_transfer/kv_connector/v1/nixl/base_scheduler.py",
    "distributed/kv_transfer/kv_connector/v1/nixl/pull_scheduler.py",
    "distributed/kv_transfer/kv_connector/v1/nixl/push_scheduler.py",
)
"""Paths in the package vllm. The NIXL workers are left out, because kvproof calls only their
trimming."""


class Lines(NamedTuple):
    """One module: the numbers of its statements and of its executed statements."""

    module: str
    statements: int
    executed: int


@contextmanager
def lines_executed() -> Iterator[Callable[[], list[Lines]]]:
    """Records the lines executed in the body. Yields a function that returns them at the end of the
    body.

    Begin before vLLM is imported; otherwise the lines of its definitions are not recorded.
    """
    tracer = coverage.Coverage(data_file=None, include=[f"*/vllm/{file}" for file in FILES])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tracer.start()
        try:
            yield lambda: _lines(tracer)
        finally:
            tracer.stop()


def _lines(tracer: coverage.Coverage) -> list[Lines]:
    tracer.stop()
    found = []
    for file in sorted(tracer.get_data().measured_files()):
        _, statements, _, missing, _ = tracer.analysis2(file)
        parts = Path(file).parts
        module = ".".join(parts[len(parts) - parts[::-1].index("vllm") - 1 :])
        executed = len(statements) - len(missing)
        found.append(Lines(module.removesuffix(".py"), len(statements), executed))
    return found
