"""The plainest search over the states of the model: the oracle of the explorer.

It applies each event to each state and keeps whole states, so nothing of the explorer's packing and
caching is in it. Tests compare both, and take from here what they want of a small cluster.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kvproof.invariants.check import Check, Tally, broken
from kvproof.invariants.registry import gravest
from kvproof.model.config import Cluster
from kvproof.model.events import Event, bare
from kvproof.model.finding import Finding
from kvproof.model.reference import apply as model
from kvproof.model.state import State, initial
from kvproof.model.step import Step


@dataclass
class Reached:
    """What a search has reached. It has the attributes of a `SearchGraph` that tests read."""

    states: list[State] = field(default_factory=list)
    parents: list[tuple[int, Event] | None] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    edges: list[tuple[int, int, Event]] = field(default_factory=list)
    self_loops: list[tuple[int, Event]] = field(default_factory=list)
    generated: int = 0
    finding: Finding | None = None
    events: tuple[Event, ...] = ()
    cut: bool = False
    tally: Tally = field(default_factory=Tally)

    def trace(self, number: int) -> tuple[Event, ...]:
        """The events of a shortest trace to a state."""
        events: list[Event] = []
        while (parent := self.parents[number]) is not None:
            number, event = parent
            events.append(event)
        return tuple(reversed(events))


def search(
    cluster: Cluster,
    invariants: Sequence[Check] = (),
    states_max: int = 20_000,
    *,
    on_step: Callable[[Step], None] = lambda _: None,
) -> Reached:
    """Visit all states, up to the first step that breaks an invariant, or until more than
    `states_max` are known. Each step is passed to `on_step`."""
    reached = Reached([initial(cluster)], [None], [0])
    known = {reached.states[0]: 0}
    queue = deque([0])
    while queue and not reached.cut:
        origin = queue.popleft()
        for stimulus in model.stimuli(cluster, reached.states[origin]):
            step = model.apply(cluster, reached.states[origin], stimulus)
            event = bare(step.event)
            reached.generated += 1
            on_step(step)
            if findings := gravest(broken(cluster, step, invariants, reached.tally)):
                reached.finding = findings[0]
                reached.events = (*reached.trace(origin), event)
                return reached
            target = known.setdefault(step.after, len(known))
            if target == len(reached.states):
                reached.states.append(step.after)
                reached.parents.append((origin, event))
                reached.depths.append(reached.depths[origin] + 1)
                queue.append(target)
            if target == origin:
                reached.self_loops.append((origin, event))
            else:
                reached.edges.append((origin, target, event))
        reached.cut = len(reached.states) > states_max
    return reached
