"""Events of a run with the blocks that each choice took and freed.

A search stores events without block ids: with block ids there would be many more distinct events,
and states equal up to renaming would have different ones. The block ids are filled in by taking the
run again.
"""

from collections.abc import Iterable

from kvproof.model.config import Cluster
from kvproof.model.events import Event, bare
from kvproof.model.reference import apply as model
from kvproof.model.state import initial


def filled(cluster: Cluster, events: Iterable[Event]) -> tuple[Event, ...]:
    """The events of a run of the model, from its initial state, each with its blocks."""
    state, resolved = initial(cluster), []
    for event in events:
        step = model.apply(cluster, state, bare(event))
        state = step.after
        resolved.append(step.event)
    return tuple(resolved)
