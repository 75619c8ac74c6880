"""How the budget of a gate is divided, and the least one in which something can be driven."""

import math

SEARCHED = 0.9
"""The share of the budget after which no workload begins."""

FOUND = 0.75
"""The same where something was found, which must still be shrunk and written, or where something
has to be seen more often in fresh runs."""

WEIGHED = 0.95
"""The share of the budget after which no fresh runs begin."""


def too_short(budget: float, start_s: float) -> str:
    """What to say where a start of so many seconds has left no time."""
    return (
        f"a budget of {budget:.0f} s is used up before anything is driven: to start both vLLMs "
        f"takes about {start_s:.0f} s here; use --budget {enough(start_s, start_s)} or more"
    )


def enough(started_s: float, left_s: float) -> int:
    """A budget, in seconds, in which what is left of a search is driven too, that would take so
    long."""
    return math.ceil((started_s + left_s) / SEARCHED / 10) * 10
