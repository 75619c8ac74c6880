"""Whether the cause of a known finding was at work in a run, where no step shows it: the run is
taken once more, without an ingredient of the cause."""

from collections.abc import Sequence
from contextlib import suppress

from kvproof.invariants.registry import CHECKS
from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift
from kvproof.model.events import Event, stimulus
from kvproof.model.known_finding import KnownFinding
from kvproof.model.machine import Machine
from kvproof.strategies.run import Run, Violated


def at_work(
    known: KnownFinding, make: type[Machine], cluster: Cluster, events: Sequence[Event], check: str
) -> bool:
    """Whether the check of a finding holds in a run without an ingredient of the cause of a known
    finding. It must have something to judge there, and no engine may die. What cannot be tried is
    not known to have been at work."""
    if known.without is None:
        return True
    with suppress(Exception, AdapterDrift):  # there is no such cluster
        machine = make(known.without(cluster))  # type: ignore[call-arg]
        try:
            return _holds(Run(machine, [CHECKS[check]]), events, check)
        finally:
            machine.close()
    return False


def _holds(run: Run, events: Sequence[Event], check: str) -> bool:
    """Whether a check holds after those of the events that are possible when their turn comes."""
    try:
        for event in map(stimulus, events):
            if event in run.stimuli:
                run.take_one(event)
    except Violated:
        return False
    return not run.dead and run.tally.judged[check] > 0
