"""A search that goes on from saved data, and the checks that keep it from a false verdict.

The data may have been made on purpose. So a finding is never taken from it: its step is taken
again. A sample of the expanded states is expanded again, with all invariants. If the search ends in
a violation, all states of its run are expanded again, or, for a run without end, all states. What
these checks do not find is a step that is missing in a state outside the sample.
"""

import random
from collections.abc import Iterable, Sequence

from kvproof.strategies.explorer.packed import PackedSearch, StepFrom
from kvproof.strategies.explorer.saved_graph import Broken, SavedGraph, restored
from kvproof.strategies.explorer.search_graph import SearchGraph

SAMPLE = 1000
"""The number of states that are expanded again, about 1 ms each, beside one state for each event,
margin and coverage goal. In a smaller search these are all states, so nothing can be forged."""


def resumed(fresh: PackedSearch, data: SavedGraph) -> PackedSearch:
    """The search of the same scope as `fresh` that goes on from saved data. Raises Broken if the
    data is not that of such a search; a forged state can raise any other exception."""
    reached = restored(fresh.cluster, data, fresh.renamings)
    checked = _checker(fresh, reached)
    known = {name for name, _ in fresh.margins}
    if not reached.margins.keys() <= known:
        raise Broken("a margin is that of no invariant")
    last = reached.expanded - 1 if data.violated else reached.expanded
    expand_again(checked, (number for number in _sample(reached, last) if number < last))
    if data.violated:
        _fail_again(checked, last)
    for name, (smallest, number) in reached.margins.items():
        if _margins(checked, number).get(name) != smallest:
            raise Broken("a margin is not that of its state")
    return _on(fresh, reached)


def confirm(search: PackedSearch, *, without_end: bool) -> None:
    """Expand again all states of the run to the violation that a search found; all states if it is
    a run without end. Raises Broken if one of them is not as it was saved."""
    reached = search.reached
    number = reached.expanded - 1
    path = []
    while number:
        number = reached.parent(number)
        path.append(number)
    again = range(reached.expanded) if without_end else path
    expand_again(_checker(search, reached), again)


def expand_again(search: PackedSearch, states: Iterable[int]) -> None:
    """Raise Broken if one of these expanded states has not the steps, margins and coverage goals
    that were saved."""
    for origin in states:
        steps = list(search.steps_from(origin))
        if any(step.breaks for step in steps):
            raise Broken(f"the expanded state {origin} breaks an invariant")
        _compare(search, origin, steps)


def _checker(search: PackedSearch, reached: SearchGraph) -> PackedSearch:
    """A search to expand states again, in which every coverage goal is open."""
    goals, reached.goals = reached.goals, {}
    checker = _on(search, reached)
    reached.goals = goals
    return checker


def _on(fresh: PackedSearch, reached: SearchGraph) -> PackedSearch:
    return PackedSearch(
        fresh.cluster, fresh.invariants, reached=reached, symmetric=fresh.orbits is not None
    )


def _sample(reached: SearchGraph, expanded: int) -> set[int]:
    """Expanded states by chance, and one for each event and each coverage goal."""
    (origins, _, events, _), (loop_origins, loop_events) = reached.arrays
    by_event = dict(zip(events, origins, strict=True))
    by_event.update(zip(loop_events, loop_origins, strict=True))
    if len(by_event) != len(reached.event_list):
        raise Broken("an event is on no edge")
    chosen = random.sample(range(expanded), min(SAMPLE, expanded))
    return {*by_event.values(), *reached.goals.values(), *chosen}


def _compare(search: PackedSearch, origin: int, steps: Sequence[StepFrom]) -> None:
    """Raise Broken if an expanded state has other steps, margins or coverage goals than saved."""
    reached = search.reached
    found = []
    for step in steps:
        target = reached.numbers.get(step.after)
        if target is None:
            raise Broken("a step leads to a state that was not reached")
        found.append((target, reached.event_number(step.taken.event), step.turn))
    if sorted(found) != sorted(reached.outgoing(origin)):
        raise Broken(f"state {origin} does not have the steps of its cluster")
    met = {goal for step in steps for goal in step.taken.goals}
    first = {goal for goal, number in reached.goals.items() if number == origin}
    if not first <= met or any(reached.goals.get(goal, origin + 1) > origin for goal in met):
        raise Broken("a coverage goal was met in another state")
    for name, margin in _margins(search, origin).items():
        if name not in reached.margins or margin < reached.margins[name][0]:
            raise Broken("a margin is not the smallest")


def _margins(search: PackedSearch, number: int) -> dict[str, int]:
    """The margins of the invariants in a state, without those that are not about it."""
    state = search.reached.states[number]
    found = ((name, margin(search.cluster, state)) for name, margin in search.margins)
    return {name: margin for name, margin in found if margin is not None}


def _fail_again(search: PackedSearch, origin: int) -> None:
    """Take again the step that ended the search, and record its finding."""
    reached = search.reached
    known = reached.outgoing(origin) if origin >= 0 else []
    steps = list(search.steps_from(origin))[: len(known) + 1] if origin >= 0 else []
    if len(steps) <= len(known) or not steps[-1].breaks:
        raise Broken("the step that ended the search breaks no invariant")
    _compare(search, origin, steps[:-1])
    search.fail(steps[-1].event, origin)
    reached.generated += 1
    reached.fired[type(steps[-1].event).__name__] += 1
