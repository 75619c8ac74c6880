"""The explorer: it visits every state of a scope and gives the verdict.

Guarantee: if the search ends by itself, it has visited every state reachable in the scope, every
invariant holds in each of them, every step keeps every guard of the spec, and every fair run ends.
A violation has a shortest trace. A search that a bound or the user cut is UNKNOWN.
"""

import time
from collections.abc import Sequence
from typing import Any

from kvproof.invariants.check import Check
from kvproof.invariants.registry import CHECKS
from kvproof.model import interruption
from kvproof.model.config import Cluster
from kvproof.model.config.features.registry import refuse_unmodelled
from kvproof.model.events import Event, Submit, bare
from kvproof.model.machine import ModelMachine
from kvproof.strategies.count_conformance import conformance_checks
from kvproof.strategies.explorer.fairness import no_progress
from kvproof.strategies.explorer.packed import PackedSearch
from kvproof.strategies.explorer.running import Limits, Progress, run
from kvproof.strategies.explorer.search_graph import SearchGraph
from kvproof.strategies.verdict import INTERRUPTED, Outcome, Verdict, earned


def explore(
    cluster: Cluster,
    invariants: Sequence[Check] | None = None,
    states_max: int = Limits().states,
    progress: Progress | None = None,
    *,
    memory_mib: int | None = None,
) -> Outcome:
    """The verdict of an exhaustive search: EXHAUSTED, VIOLATED with a shortest trace, or UNKNOWN if
    a limit or the user cut it."""
    return explored(cluster, invariants, Limits(states_max, memory_mib), progress)[0]


def explored(
    cluster: Cluster,
    invariants: Sequence[Check] | None = None,
    limits: Limits = Limits(),  # noqa: B008
    progress: Progress | None = None,
) -> tuple[Outcome, SearchGraph]:
    """As `explore`, but also returns the search graph."""
    refuse_unmodelled(cluster)
    chosen = [*CHECKS.values(), *conformance_checks()] if invariants is None else list(invariants)
    start = time.perf_counter()
    search = PackedSearch(cluster, chosen)
    reason = run(search, limits, progress)
    reached = search.reached
    reached.cut = bool(reason)
    finding, events = reached.finding, reached.events
    with interruption.stoppable() as stopped:
        if finding is None and not reason:
            interruption.check()
            blocked = no_progress(cluster, reached, chosen)
            if blocked is not None:
                finding, lasso = blocked
                reached.finding, reached.events = finding, lasso.prefix
                events = (*lasso.prefix, *lasso.cycle)
    if stopped:
        finding, reason, reached.cut = None, INTERRUPTED, True
    seconds = time.perf_counter() - start
    coverage = _coverage(search)
    if finding is not None:
        events = _with_blocks(cluster, events)
        return Outcome(Verdict.VIOLATED, coverage, events, finding, seconds=seconds), reached
    if reason:
        return Outcome(Verdict.UNKNOWN, coverage, reason=reason, seconds=seconds), reached
    return earned(Outcome(Verdict.EXHAUSTED, coverage, seconds=seconds)), reached


def _with_blocks(cluster: Cluster, events: Sequence[Event]) -> tuple[Event, ...]:
    """The events of a run, each with the blocks that its choices took and freed. The search stores
    events without block ids, because there would be many more distinct events with them; the ids
    are filled in by taking the run again."""
    machine = ModelMachine(cluster)
    return tuple(machine.take(bare(event)).event for event in events)


def _rejected(cluster: Cluster) -> list[str]:
    """The jobs that a single engine rejects as they arrive, because its pool can never hold
    them."""
    machine, names = ModelMachine(cluster), []
    for event in machine.stimuli():
        if isinstance(event, Submit):
            after = machine.take(event).after
            if after.engine(event.engine).find(event.request) is None:
                names.append(event.request)
    return names


def _coverage(search: PackedSearch) -> dict[str, Any]:
    """The coverage of a search, as data."""
    return {**search.reached.coverage(search.judged), "rejected": _rejected(search.cluster)}
