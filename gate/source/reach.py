"""Which functions of vLLM a run calls.

From Python 3.12 on, `sys.monitoring` reports the first call of each function and nothing after it,
which costs next to nothing. Before, Python's profiler counts every call: a run takes about 1.6
times as long, and 2.2 times with a profile function in Python. (A trace function costs the same,
and would be in the way of debuggers and of `coverage`.)
"""

import cProfile
import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

from kvproof.model.errors import UsageError

MODULE = "<module>"
"""The body of a module, as in `changes`."""

TOOLS = (3, 4, 0, 1, 2, 5)
"""Where `sys.monitoring` may have room; 0, 1, 2 and 5 are meant for debuggers, `coverage`,
profilers and optimizers."""


class Called:
    """The functions of a package that were called, as keys like `v1/request.py:Request.append`.

    What is nested in a function belongs to it: lambdas, comprehensions, classes. `<class X>` and
    `<module>` are bodies that ran, as `changes` names them."""

    def __init__(self, package: Path) -> None:
        folders = (os.path.abspath(package), os.path.realpath(package))
        self.folders = tuple(f"{folder}{os.sep}" for folder in dict.fromkeys(folders))
        self.codes: set[CodeType] = set()

    @property
    def functions(self) -> frozenset[str]:
        """The keys of the functions that were called so far."""
        return frozenset(filter(None, map(self._key, tuple(self.codes))))

    def _key(self, code: CodeType) -> str:
        path = os.path.abspath(code.co_filename)
        folder = next((each for each in self.folders if path.startswith(each)), None)
        if folder is None or code.co_filename.startswith("<"):
            return ""
        return f"{path.removeprefix(folder).replace(os.sep, '/')}:{function(code)}"


def function(code: CodeType) -> str:
    """The function that some code is, or is nested in."""
    name, inside, _ = code.co_qualname.partition(".<locals>")
    outer, _, last = name.rpartition(".")
    if last.startswith("<"):  # a lambda or a comprehension of a class or a module
        return f"<class {outer}>" if outer else MODULE
    is_body = not inside and not code.co_flags & inspect.CO_NEWLOCALS
    return f"<class {name}>" if is_body else name


@contextmanager
def called(package: Path) -> Iterator[Called]:
    """Record the functions of a package that this thread calls in the block. `package` is the
    folder. Raises UsageError where another profiler is at work."""
    found = Called(package)
    with _monitored(found) if sys.version_info >= (3, 12) else _profiled(found):
        yield found


@contextmanager
def _profiled(found: Called) -> Iterator[None]:
    if sys.getprofile() is not None:
        raise _taken()
    profiler = cProfile.Profile(subcalls=False, builtins=False)
    profiler.enable()
    try:
        yield
    finally:
        profiler.disable()
        codes = (entry.code for entry in profiler.getstats())
        found.codes.update(code for code in codes if isinstance(code, CodeType))


@contextmanager
def _monitored(found: Called) -> Iterator[None]:
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
    started = monitoring.events.PY_START
    seen = found.codes.add

    def note(code: CodeType, _: int) -> object:
        seen(code)
        return monitoring.DISABLE  # until restart_events

    tool = next((each for each in TOOLS if monitoring.get_tool(each) is None), None)
    if tool is None:
        raise _taken()
    monitoring.use_tool_id(tool, "kvproof")
    try:
        monitoring.register_callback(tool, started, note)
        monitoring.restart_events()
        monitoring.set_events(tool, started)
        yield
    finally:
        monitoring.set_events(tool, 0)
        monitoring.register_callback(tool, started, None)
        monitoring.free_tool_id(tool)


def _taken() -> UsageError:
    return UsageError(
        "A profiler is at work, so the functions that a run calls cannot be recorded. "
        "Use a run without a profiler."
    )
