"""Mistakes that are planted in kvproof itself: a function of the sanitizer raises.

`count` and `injure` are called in the engine's process, before the engine is built.
"""

import importlib
import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable
from functools import reduce, wraps
from typing import Any

import pytest

WATCH = "kvproof.watch"
MODULES = ("contents", "history", "judge", "noted", "observer", "several", "shape", "slices")
MODULES += ("tokens", "watching", "worker")
calls: Counter[str] = Counter()
_changed = pytest.MonkeyPatch()


def printed_once(log: str, place: str) -> bool:
    """Whether the sanitizer printed the mistake once when it came, and as UNKNOWN at the end."""
    lines = [line for line in re.findall(r"kvproof: (.*)", log) if f"planted in {place}" in line]
    ends = [line for line in lines if line.startswith("UNKNOWN")]
    return len(ends) == 1 and len(lines) <= 2


class Injury(Exception):
    """A planted mistake."""


def places() -> list[str]:
    """Every function of the sanitizer that a running engine may call."""
    found = []
    for name in MODULES:
        module = importlib.import_module(f"{WATCH}.{name}")
        for owner in (module, *(c for c in vars(module).values() if inspect.isclass(c))):
            for last, value in vars(owner).items():
                if inspect.isfunction(value) and value.__module__ == module.__name__:
                    path = value.__qualname__
                    if path.endswith(last):
                        found.append(f"{module.__name__}:{path}")
    return sorted(set(found))


def _around(place: str, before: Callable[[], None]) -> None:
    """Call `before` before each call of a function."""
    module, _, path = place.partition(":")
    *owners, last = path.split(".")
    owner = reduce(getattr, owners, importlib.import_module(module))
    original = getattr(owner, last)

    @wraps(original)
    def called(*args: Any, **kwargs: Any) -> Any:
        before()
        return original(*args, **kwargs)

    users = [m for n, m in sys.modules.items() if n.startswith(WATCH)] if not owners else [owner]
    for user in users:
        if getattr(user, last, None) is original:
            _changed.setattr(user, last, called)


def count(_llm: Any) -> None:
    """Count the calls of every function from now on."""
    for place in places():
        _around(place, lambda place=place: calls.update([place]))


def counted(_llm: Any) -> dict[str, int]:
    """The counts."""
    return dict(calls)


def injure(_llm: Any, place: str, call: int) -> None:
    """Let a function raise at this call, the first being 1. Others are healed."""
    _changed.undo()
    left = [call]

    def hurt() -> None:
        left[0] -= 1
        if not left[0]:
            raise Injury(f"planted in {place}")

    _around(place, hurt)
