"""The least budget with which the gate can drive something on this machine."""

import math
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress

from kvproof.model.errors import UsageError

SEARCHED = 0.9
"""The share of the budget after which no workload begins."""

FOUND = 0.75
"""The same where something was found, which must still be shrunk and written, or where something
has to be seen more often in fresh runs."""

WEIGHED = 0.95
"""The share of the budget after which no fresh runs begin."""

SURE_S = 120
"""A budget of so many seconds is not looked at: a start takes less on any machine seen so far."""

STARTS = 6
"""A start takes so many times as long as the import of torch alone: each side imports vLLM and
looks at it, and the runs of the faults are computed. It took 6.5 times the processor's time."""

TRIES = 2
"""The least budget is that of so many starts: the workloads need time, too."""

PROBE = "import torch"


def least(start_s: float) -> int:
    """The least budget for a start of so many seconds, in seconds."""
    return math.ceil(start_s * TRIES / SEARCHED / 10) * 10


def too_short(budget: float, start_s: float) -> str:
    """What to say where a start leaves no time."""
    return (
        f"A budget of {budget:.0f} s is used up before anything is driven: to start both vLLMs "
        f"takes about {start_s:.0f} s here. Use --budget {least(start_s)} or more."
    )


def enough(started_s: float, left_s: float) -> int:
    """A budget, in seconds, in which what is left of a search is driven too, that would take so
    long."""
    return math.ceil((started_s + left_s) / SEARCHED / 10) * 10


def require(budget: float, environment: Mapping[str, str], probe: str = PROBE) -> None:
    """Raise UsageError where a start leaves no time, by a measure that takes a few seconds."""
    if budget >= SURE_S:
        return
    start_s = STARTS * measured(budget, environment, probe)
    if start_s > SEARCHED * budget:
        raise UsageError(too_short(budget, start_s))


def measured(most_s: float, environment: Mapping[str, str], probe: str) -> float:
    """How long a process with this environment takes for a line of Python, at most `most_s`, in
    seconds."""
    begin = time.monotonic()
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-c", probe],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=most_s,
            check=False,
        )
    return time.monotonic() - begin
