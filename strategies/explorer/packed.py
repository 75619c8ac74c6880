"""The explorer's search on packed states: what `kvproof explore` runs.

It is a breadth-first search of the model. A state is the numbers of its parts (`collapse`), a step
is computed once for all that it looks at (`local_steps`), and the invariants of an engine or a
state are checked once. A plain search without any of this visits the same states in the same order
(`tests/breadth_first.py`); a test compares them. Cost: about 0.6 KiB for each state and its edges,
plus the distinct parts.
"""

from collections.abc import Iterable, Sequence

from kvproof.invariants.check import Asked, Check, broken
from kvproof.invariants.registry import gravest
from kvproof.model.config import Cluster
from kvproof.model.events import Event, bare
from kvproof.model.reference import apply as model
from kvproof.model.state import Engine, State
from kvproof.strategies.explorer.collapse import Parts
from kvproof.strategies.explorer.local_steps import LocalSteps
from kvproof.strategies.explorer.running import Search
from kvproof.strategies.explorer.search_graph import SearchGraph


class PackedJudge:
    """Checks each invariant once for each engine or state that it is about."""

    def __init__(self, cluster: Cluster, invariants: Iterable[Check]) -> None:
        checks = tuple(invariants)
        self.of_engine = Asked(checks, Engine, cluster)
        self.of_state = Asked(checks, State, cluster)
        self.sound: set[int] = set()

    def breaks(self, parts: Parts, state: State) -> bool:
        """Whether an engine or the state breaks an invariant."""
        for number, engine in zip(parts, state.engines, strict=False):
            if number not in self.sound:
                if not engine.dead and self.of_engine.violated(engine):
                    return True
                self.sound.add(number)
        return self.of_state.violated(state)


class PackedSearch(Search):
    """A search of the model, which can be set to each state."""

    def __init__(self, cluster: Cluster, invariants: Sequence[Check]) -> None:
        invariants = [check for check in invariants if not check.ideal]  # no state breaks one
        self.cluster, self.invariants = cluster, tuple(invariants)
        self.reached = SearchGraph(cluster)
        self.steps = LocalSteps(cluster, invariants, self.reached.collapse)
        self.judge = PackedJudge(cluster, invariants)
        self.asked = [check.id for check in invariants if check.kind != "eventually"]

    look_states = 200

    @property
    def is_broken(self) -> bool:
        """Whether an invariant broke."""
        return self.reached.finding is not None

    @property
    def judged(self) -> dict[str, int]:
        """How often each check had something to judge, in the distinct states and steps so far."""
        of_types = self.steps.of_step, self.judge.of_engine, self.judge.of_state
        return {name: sum(each.judged[name] for each in of_types) for name in self.asked}

    def expand(self) -> None:
        """Take every step from the next state."""
        reached = self.reached
        collapse, origin = reached.collapse, reached.expanded
        parts = reached.parts[origin]
        for event in model.stimuli(self.cluster, collapse.state(parts)):
            taken = self.steps.take(parts, event)
            after = taken.after(parts)
            target = reached.numbers.get(after)
            kind = type(event).__name__
            reached.generated += 1
            reached.fired[kind] += 1
            unsound = target is None and self.judge.breaks(after, collapse.state(after))
            if taken.breaks or unsound:
                self._fail(event, origin)
                break
            if target is None:
                target = reached.add(after, (origin, taken.event))
                reached.new[kind] += 1
            reached.join(origin, target, taken.event)
        reached.expanded += 1

    def _fail(self, event: Event, origin: int) -> None:
        """Take a step again with all details, and record the most severe finding."""
        state = self.reached.state(origin)
        step = model.apply(self.cluster, state, event)
        self.reached.finding = gravest(broken(self.cluster, step, self.invariants))[0]
        self.reached.events = (*self.reached.trace(origin), bare(step.event))
