"""The explorer: every state of a scope, and what is to be said of them.

Guarantee: if the search ends by itself, every state reachable in the scope was seen, every
invariant held in it and every fair run ends; a violation comes with a shortest trace. A search that
was cut, by a bound or by the user, is UNKNOWN, and goes on from its checkpoint.
"""

import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from kvproof.invariants.goals.registry import goals_of
from kvproof.invariants.invariant import Invariant
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.config import Cluster
from kvproof.model.events import describe
from kvproof.model.reference.default_rules import REFERENCE
from kvproof.model.reference.rules import Rules
from kvproof.strategies.conformance.filled import filled
from kvproof.strategies.count_conformance import ties
from kvproof.strategies.explorer import checkpoint
from kvproof.strategies.explorer.expanded_orbits import ExpandedOrbits
from kvproof.strategies.explorer.fairness import no_progress
from kvproof.strategies.explorer.packed import PackedSearch
from kvproof.strategies.explorer.search_graph import SearchGraph
from kvproof.strategies.verdict import INTERRUPTED, Outcome, Verdict

Progress = Callable[[int, int], None]
"""Called now and then with the number of distinct states and of those still to expand."""

LOOK_STATES = 200
"""States expanded between two looks at clock, memory and progress."""


class Limits(NamedTuple):
    """Where a search is cut: distinct states, and memory of the process (MiB)."""

    states: int = 1_000_000
    memory_mib: int | None = None


class Checkpoint(NamedTuple):
    """The file a search is kept in, whether it goes on from there, and how often it is written."""

    path: Path
    resume: bool = False
    every_s: float = 30.0


def explore(
    cluster: Cluster,
    rules: Rules = REFERENCE,
    invariants: Sequence[Invariant] | None = None,
    states_max: int = Limits().states,
    progress: Progress | None = None,
    *,
    memory_mib: int | None = None,
    kept: Checkpoint | None = None,
    symmetric: bool = False,
) -> Outcome:
    """The verdict of an exhaustive search: EXHAUSTED, VIOLATED with a shortest trace, or UNKNOWN
    where a limit or the user cut it. `symmetric` takes states that differ in names only for one.
    Raises UsageError where a checkpoint cannot be used."""
    limits = Limits(states_max, memory_mib)
    return explored(cluster, rules, invariants, limits, progress, kept, symmetric)[0]


def explored(
    cluster: Cluster,
    rules: Rules = REFERENCE,
    invariants: Sequence[Invariant] | None = None,
    limits: Limits = Limits(),  # noqa: B008
    progress: Progress | None = None,
    kept: Checkpoint | None = None,
    symmetric: bool = False,
) -> tuple[Outcome, SearchGraph]:
    """The same, with the graph that was reached."""
    chosen = [*INVARIANTS.values(), *ties(rules)] if invariants is None else list(invariants)
    start = time.perf_counter()
    about = checkpoint.scope(cluster, rules, [i.id for i in chosen], symmetric)
    before = checkpoint.load(kept.path, about, cluster) if kept and kept.resume else None
    search = PackedSearch(cluster, rules, chosen, before, symmetric)
    reason = _run(search, limits, progress, kept, about)
    reached = search.reached
    reached.cut = bool(reason)
    whole = ExpandedOrbits(search) if symmetric else None
    finding, events = reached.finding, reached.events
    if finding is not None and whole is not None:
        finding, events = whole.violation(search)
    if finding is None and not reason:
        blocked = no_progress(cluster, whole or reached, chosen)
        if blocked is not None:
            finding, events = blocked[0], blocked[1].prefix
            reached.finding, reached.events = finding, events
    seconds = time.perf_counter() - start
    coverage = _coverage(cluster, reached, whole)
    if whole is not None:
        coverage["renamings"] = whole.size
    if finding is not None:
        events = filled(cluster, rules, events)
        return Outcome(Verdict.VIOLATED, coverage, events, finding, seconds=seconds), reached
    if reason:
        return Outcome(Verdict.UNKNOWN, coverage, reason=reason, seconds=seconds), reached
    return Outcome(Verdict.EXHAUSTED, coverage, seconds=seconds), reached


def _run(
    search: PackedSearch,
    limits: Limits,
    progress: Progress | None,
    kept: Checkpoint | None,
    about: dict[str, Any],
) -> str:
    """Expand until it is over. Returns why it is not, if it is not."""
    reached = search.reached
    saved_at = time.monotonic()
    with _interruptible() as asked:
        reason = ""
        while not search.over and not reason:
            search.expand()
            if len(reached.packed) > limits.states:
                reason = f"the search was cut at {limits.states} states"
            if asked():
                reason = INTERRUPTED
            if reached.expanded % LOOK_STATES and not reason:
                continue
            if progress is not None:
                try:
                    progress(len(reached.packed), len(reached.packed) - reached.expanded)
                except KeyboardInterrupt:
                    reason = INTERRUPTED
            if limits.memory_mib is not None and memory_mib() > limits.memory_mib:
                reason = f"the search was cut at {limits.memory_mib} MiB"
            if kept is not None and (reason or time.monotonic() - saved_at > kept.every_s):
                checkpoint.save(kept.path, about, reached)
                saved_at = time.monotonic()
        if kept is not None and not reason:
            checkpoint.save(kept.path, about, reached)
    if search.over and reason != INTERRUPTED:
        return ""
    return reason


def memory_mib() -> int:
    """The most memory this process has held so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (1024 * 1024 if sys.platform == "darwin" else 1024)


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Ctrl-C is noted, so that the search stops between two states. A second one is not waited
    for."""
    asked = False

    def note(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            signal.default_int_handler(number, frame)
        asked = True

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


def _coverage(
    cluster: Cluster, reached: SearchGraph, whole: ExpandedOrbits | None
) -> dict[str, Any]:
    """What a search has looked at. `margins` tells how close an invariant came to being broken,
    after how many events, and after which; `goals` after how many events each was first reached."""

    def trace(state: int) -> list[str]:
        events = reached.trace(state) if whole is None else whole.trace(state * whole.size)
        return [describe(event) for event in events]

    return {
        "states_distinct": len(reached.packed),
        "states_generated": reached.generated,
        "depth": max(reached.depths),
        "events": dict(sorted(reached.fired.items())),
        "events_new": dict(sorted(reached.new.items())),
        "margins": {
            name: {"smallest": smallest, "after_events": reached.depths[at], "trace": trace(at)}
            for name, (smallest, at) in sorted(reached.margins.items())
        },
        "goals": {g: reached.depths[at] + 1 for g, at in sorted(reached.goals.items())},
        "goals_not_reached": [g.id for g in goals_of(cluster) if g.id not in reached.goals],
    }
