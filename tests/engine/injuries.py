"""Mistakes that are planted in kvproof itself: a method of the sanitizer raises.

`injure` is called in the engine's process, before the engine is built.
"""

import re
from typing import Any

import pytest

from tests.in_vllm import around

_changed = pytest.MonkeyPatch()


def printed_once(log: str, place: str) -> bool:
    """Whether the sanitizer printed the mistake once when it came, and as UNKNOWN at the end."""
    lines = [line for line in re.findall(r"kvproof: (.*)", log) if f"planted in {place}" in line]
    ends = [line for line in lines if line.startswith("UNKNOWN")]
    return len(ends) == 1 and len(lines) <= 2


class Injury(Exception):
    """A planted mistake."""


def injure(_llm: Any, place: str, call: int) -> None:
    """Let a method raise at this call, the first being 1. Others are healed."""
    left = [call]

    def called(right: Any, *args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            raise Injury(f"planted in {place}")
        return right(*args, **kwargs)

    _changed.undo()
    around(place, called)(_changed)
