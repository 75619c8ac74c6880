"""Events of a run with the blocks that each choice took and freed.

A search keeps bare events: with their blocks they would be many more, and states that differ in
names only would have other ones. A run says them once it is taken again.
"""

from collections.abc import Iterable

from kvproof.model.config import Cluster
from kvproof.model.events import Event, bare
from kvproof.model.reference import apply as model
from kvproof.model.reference.rules import Rules


def filled(cluster: Cluster, rules: Rules, events: Iterable[Event]) -> tuple[Event, ...]:
    """The events of a run of the model, from its initial state, each with its blocks."""
    state, said = model.initial(cluster), []
    for event in events:
        step = model.apply(cluster, state, bare(event), rules)
        state = step.after
        said.append(step.event)
    return tuple(said)
