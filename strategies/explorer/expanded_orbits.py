"""The graph of all states, expanded from the graph of representatives that a search with symmetry
built.

Each state is a representative and a renaming. Runs and fairness are judged on this graph, because a
request keeps its name in it: among representatives alone, two requests that alternate could be
mistaken for one.
"""

from collections.abc import Sequence

from kvproof.invariants.invariant import broken
from kvproof.invariants.registry import gravest
from kvproof.model.config import Cluster
from kvproof.model.events import Event, bare
from kvproof.model.finding import Finding
from kvproof.model.reference import apply as model
from kvproof.model.state import State, initial
from kvproof.strategies.explorer.orbits import Orbits
from kvproof.strategies.explorer.packed import PackedSearch
from kvproof.strategies.explorer.search_graph import LazySequence
from kvproof.strategies.explorer.symmetry import renamed_event

Run = tuple[State, tuple[Event, ...]]
"""The last state of a run from the initial state, and the events of the run."""


class UnsoundSymmetry(Exception):
    """States that the search merged do not have the same steps up to renaming."""


class ExpandedOrbits:
    """A `StateGraph` of states up to block ids. State `n` is representative `n // size` under one
    of `size` renamings; if `n % size` is 0, it is the state that the search reached first. A state
    that a renaming does not change occurs more than once; this does not affect runs."""

    finding: Finding | None = None
    events: tuple[Event, ...] = ()

    def __init__(self, search: PackedSearch) -> None:
        if search.orbits is None:
            raise ValueError("Only a search with symmetry has orbits. Use symmetric=True.")
        self.cluster: Cluster = search.cluster
        self.orbits: Orbits = search.orbits
        self.base = search.reached
        self.cut = self.base.cut
        permutations = self.orbits.renamings
        numbers = {renaming: number for number, renaming in enumerate(permutations)}
        self.size = len(permutations)
        self._after = [[numbers[a.after(b)] for b in permutations] for a in permutations]
        self._inverse = [numbers[a.inverse] for a in permutations]
        self._first = [0]
        for number in range(1, len(self.base.packed)):
            led = self._after[self._first[self.base.parent(number)]]
            self._first.append(led[self._inverse[self.base.permutations[number]]])
        self._renamed: dict[tuple[Event, int], Event] = {}

    def _permutation(self, number: int) -> int:
        """The renaming that turns the representative into the state."""
        return self._after[number % self.size][self._first[number // self.size]]

    def _number(self, base: int, turn: int) -> int:
        """The number of a representative under a renaming."""
        return base * self.size + self._after[turn][self._inverse[self._first[base]]]

    def _event(self, event: Event, turn: int) -> Event:
        if (event, turn) not in self._renamed:
            self._renamed[event, turn] = renamed_event(event, self.orbits.renamings[turn])
        return self._renamed[event, turn]

    @property
    def states(self) -> Sequence[State]:
        """The states in the order of their numbers."""

        def state(number: int) -> State:
            parts = self.base.parts(number // self.size)
            return self.base.collapse.state(self.orbits.image(parts, self._permutation(number)))

        return LazySequence(lambda: len(self.base.packed) * self.size, state)

    @property
    def parents(self) -> Sequence[tuple[int, Event] | None]:
        """The predecessor of each state on a shortest trace, and the event; None where there is
        none: the initial state under each renaming."""

        def parent(number: int) -> tuple[int, Event] | None:
            found = self.base.parents[number // self.size]
            if found is None:
                return None
            return found[0] * self.size + number % self.size, self._event(
                found[1],
                self._after[number % self.size][self._first[found[0]]],
            )

        return LazySequence(lambda: len(self.base.packed) * self.size, parent)

    @property
    def depths(self) -> Sequence[int]:
        """Events on a shortest trace to each state."""
        return LazySequence(
            lambda: len(self.base.packed) * self.size, lambda n: self.base.depths[n // self.size]
        )

    @property
    def edges(self) -> Sequence[tuple[int, int, Event]]:
        """From, to, and the event."""

        def edge(number: int) -> tuple[int, int, Event]:
            origin, target, event = self.base.edges[number // self.size]
            turn = self._permutation(origin * self.size + number % self.size)
            led = self._after[turn][self._inverse[self.base.edge_permutations[number // self.size]]]
            start = origin * self.size + number % self.size
            return start, self._number(target, led), self._event(event, turn)

        return LazySequence(lambda: len(self.base.edges) * self.size, edge)

    @property
    def self_loops(self) -> Sequence[tuple[int, Event]]:
        """Events that change only block ids, with their state."""

        def loop(number: int) -> tuple[int, Event]:
            origin, event = self.base.self_loops[number // self.size]
            start = origin * self.size + number % self.size
            return start, self._event(event, self._permutation(start))

        return LazySequence(lambda: len(self.base.self_loops) * self.size, loop)

    def trace(self, number: int, /) -> tuple[Event, ...]:
        """The events of a shortest run to a state."""
        turn = number % self.size
        return tuple(self._event(event, turn) for event in self.run(number // self.size)[1])

    def run(self, base: int) -> Run:
        """A shortest run to the state that the search first reached in the orbit of a
        representative."""
        path = []
        while base:
            path.append(base)
            base = self.base.parent(base)
        state, events = initial(self.cluster), []
        for target in reversed(path):
            wanted = self.orbits.image(self.base.parts(target), self._first[target])
            for stimulus in model.stimuli(self.cluster, state):
                step = model.apply(self.cluster, state, stimulus)
                if self.orbits.image(self.base.collapse.parts(step.after), 0) == wanted:
                    break
            else:
                raise UnsoundSymmetry("a renamed state does not have the renamed step")
            state = step.after
            events.append(bare(step.event))
        return state, tuple(events)

    def violation(self, search: PackedSearch) -> tuple[Finding, tuple[Event, ...]]:
        """The finding that ended the search, at the end of a run."""
        state, events = self.run(self.base.expanded - 1)
        for stimulus in model.stimuli(self.cluster, state):
            step = model.apply(self.cluster, state, stimulus)
            findings = gravest(broken(self.cluster, step, search.invariants))
            if findings:
                return findings[0], (*events, bare(step.event))
        raise UnsoundSymmetry("a renamed state breaks no invariant")
