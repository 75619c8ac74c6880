"""Makes the run of a confirmed difference shorter: head still shows it, and base still does not."""

import time
from collections.abc import Sequence

from kvproof.cli.pull_request.comparison import Comparison, Confirmed, as_run
from kvproof.strategies.difference.compare import same, the_same
from kvproof.strategies.difference.shrink import shrunk
from kvproof.strategies.difference.workload import Follow

SHRINK_S = 20.0
"""The longest time for one finding, in seconds."""


def shorter(comparison: Comparison, found: Confirmed, until: float) -> Confirmed:
    """The same difference with the shortest run that was found in time. Raises Ended."""
    key = found.found.key
    until = min(until, time.monotonic() + SHRINK_S)

    def shows(runs: Sequence[Follow]) -> int | None:
        base, head = comparison.at_once(
            lambda side: side.drive(runs), lambda side: side.drive(runs)
        )
        for index, (there, here) in enumerate(zip(base, head, strict=True)):
            if not there.reason and the_same(key, here) and not the_same(key, there):
                return index
        return None

    run = shrunk(as_run(found.workload, found.found), shows, lambda: time.monotonic() < until)
    [base], [head] = comparison.at_once(
        lambda side: side.drive([run]), lambda side: side.drive([run], reach=True)
    )
    again = same(key, head)
    if again is None:  # it did not behave the same twice: what was confirmed stays
        return found
    also = frozenset(each for each in head.keys if not the_same(each, base)) - {again.key}
    return Confirmed(found.workload, again, frozenset(head.reached), also)
