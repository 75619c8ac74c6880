"""For each fault and each invariant it breaks, the shortest run of the model that shows it.

On a machine that may or may not have the mistake, the stimuli of such a run are the question, and
its invariants the answer.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kvproof.invariants.registry import check_named
from kvproof.model.config import Cluster
from kvproof.model.events import Event
from kvproof.model.faults.fault import Fault, rules_with
from kvproof.model.faults.registry import FAULTS
from kvproof.model.finding import Finding
from kvproof.model.presets import cluster_named
from kvproof.strategies.explorer.explorer import explore

ELSEWHERE = {
    "decode_loads_whole_prompt": ("pd-state",),
    "truncation_without_guard": ("pd-state-preempting",),
}
"""More clusters in which a fault shows: without prefix caching, where older releases can go."""


class Witness(NamedTuple):
    """A run that ends in a finding, which the fault explains."""

    fault: Fault
    cluster: Cluster
    events: tuple[Event, ...]
    finding: Finding


def witnesses() -> Iterator[Witness]:
    """All of them, fault by fault. Where a fault does not break an invariant in a cluster, there is
    none."""
    for fault in FAULTS.values():
        for cluster in map(cluster_named, (fault.cluster, *ELSEWHERE.get(fault.name, ()))):
            for name in fault.breaks:
                found = explore(cluster, rules_with([fault]), [check_named(name)])
                if found.finding is not None and found.finding.invariant == name:
                    yield Witness(fault, cluster, found.events, found.finding)
