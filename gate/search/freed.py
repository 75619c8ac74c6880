"""Frees a break of head from what base breaks in the same run: looks for a shorter run that head
breaks in the same way, and that says something of base."""

from collections.abc import Callable, Sequence

from kvproof.gate.difference.compare import Candidate, hides, same, the_same
from kvproof.gate.difference.result import Result
from kvproof.gate.difference.shrink import shrunk
from kvproof.gate.difference.workload import Fixed

RUNS_MAX = 64
"""The most runs that are tried for one break."""

FREED_MAX = 6
"""The most breaks for which it is tried."""

Drive = Callable[[Sequence[Fixed]], tuple[Sequence[Result], Sequence[Result]]]
"""The results of runs on base and on head."""


def freed(candidate: Candidate, run: Fixed, drive: Drive) -> Candidate | None:
    """The same break of head in a shorter `run`, in which base does not break the same, and nothing
    that base breaks hides whether it would; None if none was found. Raises Ended."""
    key, tried = candidate.found.key, 0
    free: Candidate | None = None

    def shows(runs: Sequence[Fixed]) -> int | None:
        nonlocal tried, free
        tried += len(runs)
        still: list[int] = []
        for index, (there, here) in enumerate(zip(*drive(runs), strict=True)):
            shown = same(key, here)
            if shown is None:
                continue
            still.append(index)
            if not (there.reason or the_same(key, there) or hides(shown, there, here)):
                free = Candidate(candidate.workload, shown)
                return index
        return still[0] if still else None

    shrunk(run, shows, lambda: free is None and tried < RUNS_MAX)
    return free
