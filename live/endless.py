"""A call of vLLM that does not end, as a walk over a free queue that has become a circle.

Every driver watches its calls. After `LIMIT_S` seconds of processor time in one call, `LOOKS` looks
at the stack show which function does not return: the innermost frame that all of them have. Then
`DoesNotEnd` is raised there. Processor time is counted, so a machine with much other work makes no
difference; a call that imports modules for the first time begins again after each look. Only the
main thread can be interrupted; elsewhere nothing is watched.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from kvproof.live.death import DoesNotEnd

LIMIT_S = 3.0
"""The processor time of a call, in seconds, after which it is watched. A normal call takes some
thousandths of a second."""

LOOKS = 20
LOOK_S = 0.02
"""The processor time between two looks at the stack, in seconds."""

IMPORTING = "<frozen importlib._bootstrap>"
"""The file of the frames that import a module."""


@contextmanager
def watched() -> Iterator[Callable[[], None]]:
    """Raise DoesNotEnd in the block if a call in it does not end. The block calls the function that
    it gets whenever another call begins."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    common: list[FrameType] = []
    looks = 0

    def begin() -> None:
        nonlocal common, looks
        common, looks = [], 0
        signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S, LOOK_S)

    def look(_: int, frame: FrameType | None) -> None:
        nonlocal common, looks
        stack = _stack(frame)
        if any(each.f_code.co_filename == IMPORTING for each in stack):
            begin()
            return
        common = [a for a, b in zip(common or stack, stack, strict=False) if a is b]
        looks += 1
        if looks >= LOOKS:
            inner = common[-1]
            why = f"it runs for more than {LIMIT_S:g} s"
            raise DoesNotEnd(inner.f_code, inner.f_lineno, why)

    before = signal.signal(signal.SIGVTALRM, look)
    begin()
    try:
        yield begin
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _stack(frame: FrameType | None) -> list[FrameType]:
    """The frames from the outermost to this one."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames[::-1]
