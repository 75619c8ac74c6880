"""Makes a run smaller, as long as it shows the same: a run of a cluster, or a plan of a connector
or of an engine core. First jobs and events, or parts of a plan, are left out; then fields take
their defaults, and prompts become shorter.

What is tried depends on the run alone, and not on time, so the same seed gives the same run.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from msgspec.structs import fields, replace

from kvproof.model.plans.connector import ConnectorPlan, RunSteps, SubmitRequest
from kvproof.model.plans.engine import EnginePlan
from kvproof.model.plans.messages import Send
from kvproof.model.plans.part import Taken

Shrinkable = TypeVar("Shrinkable", bound=Taken | ConnectorPlan | EnginePlan)

Ways = Callable[[Any], Iterable[Any]]
"""The runs that are smaller than a run in one way."""

AT_ONCE = 8
"""The number of runs that are tried together."""

LISTS = {Taken: ("events",), ConnectorPlan: ("actions",), EnginePlan: ("layers", "actions")}
"""The fields of a run whose parts can be left out."""

PLAIN: dict[type, tuple[str, ...]] = {
    ConnectorPlan: (
        *("copies", "stops", "clock_ahead", "options", "load_failure", "uncut"),
        "without_events",
    ),
    SubmitRequest: (
        *("beside", "computes_all", "images", "asks", "turn", "answer", "max_tokens", "rows"),
        *("trunk", "priority"),
    ),
    RunSteps: ("times",),
    EnginePlan: (
        *("copies", "odd_bytes", "more", "richer", "misses", "requests", "by_priority"),
        *("without_events", "without_statistics"),
    ),
    Send: ("grammar", "thinks", "like", "stops", "priority", "repeats", "forgotten"),
}
"""The fields whose defaults are tried, by the type of a run or of an action."""

SHORTER: dict[type, str] = {SubmitRequest: "tokens", Send: "own"}
"""The field with the number of tokens of a prompt, by the type of an action."""


def shrunk(run: Shrinkable, shows: Callable[[Shrinkable], bool], tries_max: int) -> Shrinkable:
    """The smallest run found for which `shows` is true, as it is for `run`. At most so many others
    are tried, one after the other."""
    tried = 0

    def first(runs: Sequence[Shrinkable]) -> int | None:
        nonlocal tried
        for index, each in enumerate(runs):
            tried += 1
            if shows(each):
                return index
            if tried == tries_max:
                break
        return None

    return shrunk_together(run, first, lambda: tried < tries_max)


def shrunk_together(
    run: Shrinkable,
    first: Callable[[Sequence[Shrinkable]], int | None],
    go_on: Callable[[], bool],
) -> Shrinkable:
    """The smallest run found that shows the same as `run`. `first` tries up to `AT_ONCE` runs, and
    returns the index of the first one that shows the same, None if none does. It ends early when
    `go_on` says so."""
    tried = {run}

    def smaller(run: Shrinkable, ways: Ways) -> Shrinkable:
        """Go one way as long as it leads to a run that shows the same."""
        left = iter(ways(run))
        while go_on() and (some := [*islice((e for e in left if e not in tried), AT_ONCE)]):
            index = first(some)
            tried.update(some if index is None else some[: index + 1])
            if index is not None:
                run = some[index]
                left = iter(ways(run))
        return run

    run = smaller(run, _without_jobs)
    size = max((1 << (length(run) // 2).bit_length()) // 2, 1)  # a power of two, at most half
    while size:
        run = smaller(run, partial(_without_parts, size=size))
        size //= 2
    return smaller(run, _plainer)


def length(run: Taken | ConnectorPlan | EnginePlan) -> int:
    """The number of events of a run, or of the parts of a plan."""
    return sum(len(getattr(run, name)) for name in _lists(run))


def _lists(run: Taken | ConnectorPlan | EnginePlan) -> tuple[str, ...]:
    return next(names for kind, names in LISTS.items() if isinstance(run, kind))


def _without_jobs(run: Any) -> Iterator[Any]:
    """The run without one of its jobs, the last ones first. One that another one follows stays. A
    plan has none."""
    jobs = run.cluster.jobs if isinstance(run, Taken) else ()
    for job in reversed(jobs):
        if len(jobs) > 1 and all(each.follows != job.name for each in jobs):
            kept = (each for each in jobs if each.name != job.name)
            events = tuple(e for e in run.events if getattr(e, "request", None) != job.name)
            yield replace(run, cluster=run.cluster.carrying(*kept), events=events)


def _without_parts(run: Any, size: int) -> Iterator[Any]:
    """The run without `size` parts in a row, the last ones first. The last event stays; of a plan,
    which is drained after its last action, all may go."""
    for end in range(length(run) - isinstance(run, Taken), 0, -size):
        first, before, left = max(end - size, 0), 0, dict[str, Any]()
        for name in _lists(run):
            parts = getattr(run, name)
            left[name] = tuple(e for at, e in enumerate(parts, before) if not first <= at < end)
            before += len(parts)
        yield replace(run, **left)


def _plainer(run: Any) -> Iterator[Any]:
    """The run with one field at its default, or with one shorter prompt."""
    if isinstance(run, Taken):
        return
    yield from _plain(run)
    for at, action in enumerate(run.actions):
        for other in _plain(action):
            yield replace(run, actions=(*run.actions[:at], other, *run.actions[at + 1 :]))


def _plain(part: Any) -> Iterator[Any]:
    defaults = {each.name: each.default for each in fields(part)}
    for name in PLAIN.get(type(part), ()):
        if getattr(part, name) != defaults[name]:
            yield replace(part, **{name: defaults[name]})
    tokens = SHORTER.get(type(part), "")
    if tokens and (now := getattr(part, tokens)) > 1:
        yield replace(part, **{tokens: now // 2})
        yield replace(part, **{tokens: now - 1})
