"""The explorer: it visits every state of a scope and gives the verdict.

Guarantee: if the search ends by itself, it has visited every state reachable in the scope, every
invariant holds in each of them, every step keeps every guard of the spec, and every fair run ends.
A violation has a shortest trace. A search that a bound or the user cut is UNKNOWN; it can continue
from its checkpoint.
"""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from kvproof.invariants.goals.registry import goals_of
from kvproof.invariants.invariant import Invariant
from kvproof.invariants.registry import CHECKS
from kvproof.model import interruption
from kvproof.model.config import Cluster
from kvproof.model.config.features.registry import refuse_unmodelled
from kvproof.model.events import describe
from kvproof.strategies.conformance.filled import filled
from kvproof.strategies.count_conformance import conformance_checks
from kvproof.strategies.explorer import checkpoint
from kvproof.strategies.explorer.expanded_orbits import ExpandedOrbits
from kvproof.strategies.explorer.fairness import no_progress
from kvproof.strategies.explorer.packed import PackedSearch
from kvproof.strategies.explorer.running import Checkpoint, Limits, Progress, run
from kvproof.strategies.explorer.saved_graph import SavedGraph, restored
from kvproof.strategies.explorer.search_graph import SearchGraph
from kvproof.strategies.verdict import INTERRUPTED, Outcome, Verdict


def explore(
    cluster: Cluster,
    invariants: Sequence[Invariant] | None = None,
    states_max: int = Limits().states,
    progress: Progress | None = None,
    *,
    memory_mib: int | None = None,
    kept: Checkpoint | None = None,
    symmetric: bool = False,
) -> Outcome:
    """The verdict of an exhaustive search: EXHAUSTED, VIOLATED with a shortest trace, or UNKNOWN if
    a limit or the user cut it. `symmetric` merges states that are equal up to renaming blocks or
    exchanging equal jobs. Raises UsageError if a search cannot be resumed from its checkpoint."""
    limits = Limits(states_max, memory_mib)
    return explored(cluster, invariants, limits, progress, kept, symmetric)[0]


def explored(
    cluster: Cluster,
    invariants: Sequence[Invariant] | None = None,
    limits: Limits = Limits(),  # noqa: B008
    progress: Progress | None = None,
    kept: Checkpoint | None = None,
    symmetric: bool = False,
) -> tuple[Outcome, SearchGraph]:
    """As `explore`, but also returns the search graph."""
    refuse_unmodelled(cluster)
    with checkpoint.believed(kept.path) if kept and kept.resume else nullcontext():
        return _explored(cluster, invariants, limits, progress, kept, symmetric)


def _explored(
    cluster: Cluster,
    invariants: Sequence[Invariant] | None,
    limits: Limits,
    progress: Progress | None,
    kept: Checkpoint | None,
    symmetric: bool,
) -> tuple[Outcome, SearchGraph]:
    chosen = [*CHECKS.values(), *conformance_checks()] if invariants is None else list(invariants)
    start = time.perf_counter()
    about = checkpoint.scope(cluster, [i.id for i in chosen], symmetric=symmetric)
    search = PackedSearch(cluster, chosen, symmetric=symmetric)
    if kept is not None and kept.resume:
        data = checkpoint.load(kept.path, about, SavedGraph)
        reached = restored(cluster, data)
        search = PackedSearch(cluster, chosen, reached=reached, symmetric=symmetric)
        if data.violated:
            search.fail_again()
        kept.states = len(reached.packed)
    reason = run(search, limits, progress, kept, about)
    reached = search.reached
    reached.cut = bool(reason)
    whole = ExpandedOrbits(search) if symmetric else None
    finding, events = reached.finding, reached.events
    with interruption.stoppable() as stopped:
        if finding is not None and whole is not None:
            finding, events = whole.violation(search)
        elif finding is None and not reason:
            interruption.check()
            blocked = no_progress(cluster, whole or reached, chosen)
            if blocked is not None:
                finding, lasso = blocked
                reached.finding, reached.events = finding, lasso.prefix
                events = (*lasso.prefix, *lasso.cycle)
    if stopped:
        finding, reason, reached.cut = None, INTERRUPTED, True
    seconds = time.perf_counter() - start
    coverage = _coverage(cluster, reached, whole)
    if whole is not None:
        coverage["renamings"] = whole.size
    if finding is not None:
        events = filled(cluster, events)
        return Outcome(Verdict.VIOLATED, coverage, events, finding, seconds=seconds), reached
    if reason:
        return Outcome(Verdict.UNKNOWN, coverage, reason=reason, seconds=seconds), reached
    return Outcome(Verdict.EXHAUSTED, coverage, seconds=seconds), reached


def _coverage(
    cluster: Cluster, reached: SearchGraph, whole: ExpandedOrbits | None
) -> dict[str, Any]:
    """What a search has examined. `margins` has the smallest margin of each invariant, the number
    of events after which it occurred, and these events; `goals` has the number of events after
    which each coverage goal was first reached."""

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
