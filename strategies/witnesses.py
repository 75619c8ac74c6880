"""For each fault and each invariant it breaks, the shortest run of the model that shows it.

To find out whether a machine has the mistake, give it the stimuli of this run and check the
invariants.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kvproof.invariants.check import Check
from kvproof.invariants.registry import INVARIANTS, check_named
from kvproof.model import interruption
from kvproof.model.config import Cluster
from kvproof.model.errors import UsageError
from kvproof.model.events import Event
from kvproof.model.faults.fault import Fault, planted
from kvproof.model.faults.registry import FAULTS
from kvproof.model.finding import Finding
from kvproof.model.presets import cluster_named
from kvproof.strategies.explorer.explorer import explore


class Witness(NamedTuple):
    """A run that ends in a finding, which the fault explains."""

    fault: Fault
    cluster: Cluster
    events: tuple[Event, ...]
    finding: Finding


def breaking(check: Check) -> list[Fault]:
    """The faults that break an invariant, first that of its origin, then those that break the
    fewest others."""
    found = (each for each in FAULTS.values() if check.id in each.breaks)
    return sorted(found, key=lambda each: (each.origin not in check.origin, len(each.breaks)))


def refuse_wrong_names() -> None:
    """Raise UsageError where a fault is said to break what is no invariant."""
    for fault in FAULTS.values():
        for name in fault.breaks:
            if check_named(name).id not in INVARIANTS:
                raise UsageError(
                    f"The fault {fault.name} says that it breaks {name}, which is a guard. Use "
                    "invariants alone in its breaks, and write one if only a guard finds it."
                )


def witnesses(faults: Iterable[Fault]) -> Iterator[Witness]:
    """The witnesses of these faults. A fault that does not break an invariant in a cluster has no
    witness for this pair."""
    for fault in faults:
        for cluster in map(cluster_named, fault.clusters):
            for name in fault.breaks:
                interruption.check()
                with planted(fault):
                    found = explore(cluster, [check_named(name)])
                if found.finding is not None:
                    yield Witness(fault, cluster, found.events, found.finding)
