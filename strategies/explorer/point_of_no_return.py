"""The point of no return of a violation: the event after which it could no longer be avoided, and
the events of its trace that are irrelevant to it.

A run reaches its end when every job of the cluster was submitted and every request has ended
(`termination.over`); a request also ends when its user aborts it, or when P stops holding it for D.
A violation can be avoided in a state if some run from there reaches the end and no step of that run
breaks an invariant. The runs are those of the explorer: all events of the environment, with the
scheduling of the model. Steps that break an invariant are not followed.

Cost: each state reachable from the last states of the trace is visited at most once, and the search
stops when the question is settled. Guarantee: an event is named only if the search was not cut.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from kvproof.invariants.invariant import Invariant, broken
from kvproof.model import termination
from kvproof.model.config import Cluster
from kvproof.model.events import Event, stimulus
from kvproof.model.reference import apply as model
from kvproof.model.state import State, initial
from kvproof.strategies.waits import repeats

Progress = Callable[[int, int], None]
"""Called regularly with the number of distinct states and the number of states still to expand."""

PROGRESS_EVERY = 500
"""The number of states examined between two calls of a Progress."""


class PointOfNoReturn(NamedTuple):
    """The event after which a violation was certain. Events are numbered from 1; `length` is their
    number.

    `event` is the first event after which the violation could no longer be avoided. It is 0 if no
    run from the initial state avoids the violation, and `length` if the violation could be avoided
    until the last event. It is None if it is not known (`unknown` gives the reason), or if the
    requests can still end after the last event (`unknown` is empty).

    Without all `irrelevant` events, the other events, as far as they are possible and with the
    scheduling of the model, break the same invariant and no other before it; or, if that is the
    violation, they lead to a state from which the submitted requests cannot end. No further event
    can be left out. If the search was cut, some irrelevant events may be missing.
    """

    event: int | None
    unknown: str
    irrelevant: tuple[int, ...]
    length: int

    @property
    def sentence(self) -> str:
        """The answer in plain words."""
        if not self.irrelevant:
            return f"{self._when}."
        one = len(self.irrelevant) == 1
        does = "does" if one else "do"
        return f"{self._when}; {numbered(self.irrelevant)} {does} not matter to it."

    @property
    def _when(self) -> str:
        if self.unknown:
            return f"It is unknown when the violation could no longer be avoided: {self.unknown}"
        if self.event is None:
            return "All requests could still end without a violation after the last event"
        if self.event == 0:
            return "The violation could not be avoided, whatever was done"
        if self.event == self.length:
            return "The violation could be avoided until its last event"
        return f"The violation could no longer be avoided after event {self.event}"


class Cut(Exception):
    """A search was cut before it had an answer."""


class SearchScope(NamedTuple):
    """The scope of a search: the cluster with its jobs, and the invariants."""

    cluster: Cluster
    invariants: Sequence[Invariant]

    def step(self, state: State, event: Event) -> tuple[State, tuple[str, ...]]:
        """The state after an event, and the ids of the invariants it breaks."""
        step = model.apply(self.cluster, state, event)
        return step.after, tuple(f.invariant for f in broken(self.cluster, step, self.invariants))


class Ahead:
    """Decides which states can reach an end without a violation. Caches the states that cannot.

    `states_max` limits the number of states examined in all calls together.
    """

    def __init__(
        self,
        scope: SearchScope,
        is_end: Callable[[State], bool],
        states_max: int,
        progress: Progress | None = None,
    ) -> None:
        self.scope = scope
        self.is_end = is_end
        self.states_max = states_max
        self.progress = progress
        self.looked_at = 0
        self.hopeless: set[State] = set()

    def reaches(self, start: State) -> bool:
        """Whether an end can be reached from this state. Raises Cut if `states_max` cuts the
        search.

        Searches depth first and stops at the first end. If there is none, all states reachable from
        the start were visited, and none of them reaches an end.
        """
        seen = {start} - self.hopeless
        waiting = list(seen)
        while waiting:
            if self.looked_at >= self.states_max:
                raise Cut
            state = waiting.pop()
            self.looked_at += 1
            if self.progress and self.looked_at % PROGRESS_EVERY == 0:
                self.progress(self.looked_at, len(waiting))
            if self.is_end(state):
                return True
            new = [s for s in self._next(state) if s not in seen and s not in self.hopeless]
            seen.update(new)
            # Arrivals are offered before disturbances, and are tried first.
            waiting.extend(reversed(list(dict.fromkeys(new))))
        self.hopeless |= seen
        return False

    def _next(self, state: State) -> Iterable[State]:
        """The successors of a state, without those that a violation leads to."""
        for event in model.stimuli(self.scope.cluster, state):
            after, breaks = self.scope.step(state, event)
            if not breaks:
                yield after


class Walk(NamedTuple):
    """A run up to its first violation: its states, the initial one first, and the invariants its
    last step breaks (none where it has no violation)."""

    states: list[State]
    breaks: tuple[str, ...]


def point_of_no_return(
    cluster: Cluster,
    invariants: Sequence[Invariant],
    events: Sequence[Event],
    states_max: int,
    *,
    progress: Progress | None = None,
) -> PointOfNoReturn:
    """Judge the events of a violation: the last breaks an `always` invariant, or leads to where the
    requests cannot end, and none before it breaks one of `invariants`.

    Raises NotAllowed where the model does not take the events.
    """
    scope = SearchScope(cluster, invariants)
    walk = _walk(scope, events, lambda _state, _event: True)
    lead = None if walk.breaks else repeats(walk.states)
    if lead is not None:  # the last events repeat, and the state before them is as hopeless
        events, walk = events[:lead], Walk(walk.states[: lead + 1], ())
    ahead = Ahead(scope, partial(all_ended, cluster), states_max, progress)
    event, unknown = None, ""
    try:
        event = _point(ahead, walk)
    except Cut:
        unknown = f"the search was cut at {states_max} states"
    if walk.breaks:
        irrelevant = _irrelevant(events, partial(_breaks_again, scope, walk.breaks[0]))
    else:
        over = Ahead(scope, termination.over, states_max, progress)
        irrelevant = _irrelevant(events, partial(_blocked_again, over))
    return PointOfNoReturn(event, unknown, irrelevant, len(events))


def all_ended(cluster: Cluster, state: State) -> bool:
    """Whether every job of the cluster was submitted, and every request has ended."""
    first = cluster.prefill.name
    arrived = all(
        (first, job.name) in state.ended or state.engine(first).find(job.name)
        for job in cluster.jobs
    )
    return arrived and termination.over(state)


def numbered(events: Sequence[int]) -> str:
    """Event numbers in words: `event 3`, `events 2, 5 to 7 and 9`."""
    runs: list[list[int]] = []
    for number in events:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words: list[str] = []
    for run in runs:
        words += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else [str(n) for n in run]
    listed = " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    return f"event{'' if len(events) == 1 else 's'} {listed}"


def _walk(
    scope: SearchScope, events: Iterable[Event], possible: Callable[[State, Event], bool]
) -> Walk:
    """Take the events; skip those that are not possible when their turn comes."""
    states = [initial(scope.cluster)]
    for event in events:
        if possible(states[-1], event):
            after, breaks = scope.step(states[-1], event)
            states.append(after)
            if breaks:
                return Walk(states, breaks)
    return Walk(states, ())


def _again(scope: SearchScope, events: Iterable[Event]) -> Walk:
    """Take the events of the environment that are possible; the model makes the scheduling
    choices."""
    return _walk(
        scope,
        map(stimulus, events),
        lambda s, e: e in model.stimuli(scope.cluster, s),
    )


def _point(ahead: Ahead, walk: Walk) -> int | None:
    """The first event after which no end can be reached. A state that reaches an end can do so from
    all states before it, so the search goes backwards and stops at the first that can."""
    last = len(walk.states) - 1
    unbroken = range(last if walk.breaks else last + 1)
    for index in reversed(unbroken):
        if ahead.reaches(walk.states[index]):
            return index + 1 if index < last else None
    return 0


def _irrelevant(events: Sequence[Event], still: Callable[[list[Event]], bool]) -> tuple[int, ...]:
    """The numbers of events that can be left out together. They are found by leaving out one event
    after another, from the last to the first."""
    kept = dict(enumerate(events, 1))
    smaller = True
    while smaller:
        smaller = False
        for number in sorted(kept, reverse=True):
            rest = {n: e for n, e in kept.items() if n != number}
            if still(list(rest.values())):
                kept, smaller = rest, True
    return tuple(n for n in range(1, len(events) + 1) if n not in kept)


def _breaks_again(scope: SearchScope, invariant: str, events: list[Event]) -> bool:
    """Whether this invariant is among those that break at the first violation of these events."""
    return invariant in _again(scope, events).breaks


def _blocked_again(over: Ahead, events: list[Event]) -> bool:
    """Whether these events break no invariant and lead to a state from which the submitted requests
    cannot end. False if that is unknown."""
    walk = _again(over.scope, events)
    try:
        return not walk.breaks and not over.reaches(walk.states[-1])
    except Cut:
        return False
