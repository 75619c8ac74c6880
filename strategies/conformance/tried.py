"""Whether the cause of a known finding was at work in a run, where no step shows it: the run is
taken once more, without an ingredient of the cause."""

from collections.abc import Sequence
from contextlib import suppress

from kvproof.invariants.registry import CHECKS
from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift
from kvproof.model.events import Event
from kvproof.model.machine import Machine
from kvproof.strategies.run import Run, Violated


def holds(make: type[Machine], cluster: Cluster, events: Sequence[Event], check: str) -> bool:
    """Whether a check has something to judge after these events on a cluster, and holds. No engine
    may die there."""
    with suppress(Exception, AdapterDrift):  # there is no such cluster
        machine = make(cluster)  # type: ignore[call-arg]
        try:
            return _holds(Run(machine, [CHECKS[check]]), events, check)
        finally:
            machine.close()
    return False


def _holds(run: Run, events: Sequence[Event], check: str) -> bool:
    """The same for those of the events that are possible when their turn comes."""
    try:
        list(run.follow(events))
    except Violated:
        return False
    return not run.dead and run.tally.judged[check] > 0
