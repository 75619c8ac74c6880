"""Makes a run shorter, as long as it shows the same."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from kvproof.gate.difference.workload import Fixed, Follow

Shows = Callable[[Sequence[Fixed]], int | None]
"""Tries runs, in order. Returns the index of the first that shows the same, None if none does."""

AT_ONCE = 8
"""The number of runs that are tried together."""


def shrunk(run: Fixed, shows: Shows, go_on: Callable[[], bool]) -> Fixed:
    """The shortest run found that shows the same as `run`: it leaves out jobs with their events,
    and then events or actions, in pieces of halving length. Ends early when `go_on` says so."""
    run = _smaller(run, _without_jobs, shows, go_on)
    size = max(_length(run) // 2, 1)
    while True:
        run = _smaller(run, partial(_without_events, size=size), shows, go_on)
        if size == 1 or not go_on():
            return run
        size //= 2


def _smaller(
    run: Fixed,
    pieces: Callable[[Fixed], Sequence[Fixed]],
    shows: Shows,
    go_on: Callable[[], bool],
) -> Fixed:
    """Leave out one piece after the other, until no piece can be left out."""
    tries = pieces(run)
    while tries and go_on():
        index = shows(tries[:AT_ONCE])
        if index is None:
            tries = tries[AT_ONCE:]
        else:
            run = tries[index]
            tries = pieces(run)
    return run


def _length(run: Fixed) -> int:
    return len(run.events if isinstance(run, Follow) else run.parts)


def _without_jobs(run: Fixed) -> list[Follow]:
    """The run without one of its jobs, the last ones first. A plan has none."""
    if not isinstance(run, Follow):
        return []
    return [
        _without_job(run, job.name) for job in reversed(run.cluster.jobs) if _free(run, job.name)
    ]


def _free(run: Follow, name: str) -> bool:
    return len(run.cluster.jobs) > 1 and all(job.follows != name for job in run.cluster.jobs)


def _without_job(run: Follow, name: str) -> Follow:
    jobs = [job for job in run.cluster.jobs if job.name != name]
    kept = tuple(e for e in run.events if getattr(e, "request", None) != name)
    return replace(run, cluster=run.cluster.carrying(*jobs), events=kept)


def _without_events(run: Fixed, size: int) -> Sequence[Fixed]:
    """The run without `size` events in a row, the last ones first. The last event stays; of a plan,
    which is drained after its last action, all may go."""
    if not isinstance(run, Follow):
        ends = range(len(run.parts), 0, -size)
        return [run.without(max(end - size, 0), end) for end in ends]
    ends = range(len(run.events) - 1, 0, -size)
    return [
        replace(run, events=(*run.events[: max(end - size, 0)], *run.events[end:])) for end in ends
    ]
