"""The table of transitions is what the reference does: all of it, and no more."""

from collections import deque

import pytest

from kvproof.model import phases
from kvproof.model.config import Cluster
from kvproof.model.errors import NotAllowed
from kvproof.model.phases import TRANSITIONS, Phase, Way
from kvproof.model.presets import CLUSTERS
from kvproof.model.reference import apply as model
from kvproof.model.state import Transfer, initial

Taken = tuple[Way, Phase, type, Phase]

COVERING = ("push", "push-leases", "pd-losing", "turns-recomputing", "turns-state")
"""Small clusters in which a transfer goes every way that there is."""


def taken_in(cluster: Cluster) -> set[Taken]:
    """The transitions of all steps of the reference in a cluster."""
    start = initial(cluster)
    seen, todo, found = {start}, deque([start]), set()
    while todo:
        state = todo.popleft()
        for event in model.stimuli(cluster, state):
            after = model.apply(cluster, state, event).after
            for name in {t.request for t in (*state.transfers, *after.transfers)}:
                was, now = state.phase(name), after.phase(name)
                if was != now:
                    found.add((phases.way_of(cluster, name), was, type(event), now))
            if after not in seen:
                seen.add(after)
                todo.append(after)
    return found


def test_the_reference_takes_every_transition_of_the_table_and_no_other() -> None:
    taken = set().union(*(taken_in(CLUSTERS[name]) for name in COVERING))
    lines = ((way, t) for way, found in TRANSITIONS.items() for t in found)
    assert taken == {(w, t.was, t.event, t.now) for w, t in lines if t.was != t.now}


@pytest.mark.parametrize(
    ("was", "now", "may"),
    [
        (Phase.OFFERED, Phase.READING, True),
        (Phase.READING, Phase.READING, True),
        (Phase.READING, Phase.OFFERED, False),
        (Phase.LOST, Phase.RELEASING, False),
    ],
)
def test_only_what_is_in_the_table_can_be_written(was: Phase, now: Phase, may: bool) -> None:
    transfer = Transfer("r0", was, 4, ((1,),))
    if may:
        assert transfer.to(now, tokens=3) == Transfer("r0", now, 3, ((1,),))
        return
    with pytest.raises(NotAllowed, match=f"from {was} to {now}"):
        transfer.to(now)
