"""For each fault and each invariant it breaks, the shortest run of the model that shows it.

On a machine that may or may not have the mistake, the stimuli of such a run are the question, and
its invariants the answer.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kvproof.invariants.registry import INVARIANTS, check_named
from kvproof.model.config import Cluster
from kvproof.model.events import Event
from kvproof.model.faults.fault import Fault, rules_with
from kvproof.model.finding import Finding
from kvproof.model.presets import cluster_named
from kvproof.strategies.explorer.explorer import explore


class Witness(NamedTuple):
    """A run that ends in a finding, which the fault explains."""

    fault: Fault
    cluster: Cluster
    events: tuple[Event, ...]
    finding: Finding


def broken_by(fault: Fault) -> tuple[str, ...]:
    """The ids of the invariants that a fault breaks: those it names, and those that name it."""
    naming = (each.id for each in INVARIANTS.values() if each.killed_by == fault.name)
    return tuple(dict.fromkeys((*fault.breaks, *naming)))


def witnesses(faults: Iterable[Fault]) -> Iterator[Witness]:
    """Those of these faults. Where one does not break an invariant in a cluster, there is none."""
    for fault in faults:
        for cluster in map(cluster_named, fault.clusters):
            for name in broken_by(fault):
                found = explore(cluster, rules_with([fault]), [check_named(name)])
                if found.finding is not None:
                    yield Witness(fault, cluster, found.events, found.finding)
