"""Makes the run of a confirmed difference shorter: head still shows it, and base still does not."""

import time
from collections.abc import Sequence
from typing import Any

from kvproof.gate.difference.compare import on_head_alone, same, the_same
from kvproof.gate.search.comparison import Comparison, Confirmed, as_run
from kvproof.model import interruption
from kvproof.strategies.shrinking import shrunk_together

RUNS_MAX = 160
"""The most runs that are tried for one finding: a number and not a time, so that the same trees
give the same trace, unless their runs are slow."""

FURTHER_RUNS_MAX = 40
"""The same for each finding after the first, which is the gravest."""

SHRINK_S = 60.0
"""The most time for one finding, in seconds."""


def shorter(
    comparison: Comparison, found: Confirmed, until: float, runs_max: int = RUNS_MAX
) -> Confirmed:
    """The same difference with the shortest run that was found in time, or before an interruption.
    A run that needs earlier ones stays as it is. Raises Ended."""
    if not found.alone:
        return found
    key, best = found.found.key, found
    excused = bool(key.excuses)
    until, tried = min(until, time.monotonic() + SHRINK_S), 0

    whole = as_run(found.workload, found.found)

    def shows(runs: Sequence[Any]) -> int | None:
        nonlocal tried, best
        tried += len(runs)
        these = [whole.of(each) for each in runs]
        for index, (there, here) in enumerate(comparison.results(these, excused=excused)):
            shown = on_head_alone(key, there, here)
            if shown is not None:
                best = found._replace(found=shown)
                return index
        return None

    def go_on() -> bool:
        return tried < runs_max and time.monotonic() < until

    with interruption.stoppable():
        run = whole.of(shrunk_together(whole.run, shows, go_on))
        [(base, head)] = comparison.results([run], reach=True, excused=excused)
        again = same(key, head)
        if again is None:
            best = found  # it did not behave the same twice: what was confirmed stays
        else:
            also = frozenset(each for each in head.keys if not the_same(each, base)) - {again.key}
            best = Confirmed(found.workload, again, frozenset(head.reached), also)
    return best
