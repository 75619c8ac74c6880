"""The point of no return of a run of the model, with progress; it can be interrupted."""

from collections.abc import Sequence

from kvproof.cli.progress import progress
from kvproof.invariants.invariant import Invariant
from kvproof.invariants.registry import CHECKS
from kvproof.model import interruption
from kvproof.model.config import Cluster
from kvproof.model.events import Event
from kvproof.reports.output.search import ShownPointOfNoReturn
from kvproof.strategies.explorer.point_of_no_return import point_of_no_return

AHEAD_MAX = 20_000
"""Maximum number of states that the search for the point of no return visits; beyond it, the point
is unknown."""


def looked_back(
    cluster: Cluster, events: Sequence[Event], invariants: Sequence[Invariant]
) -> ShownPointOfNoReturn | None:
    """The event from which the violation was certain. None if the user interrupts this search (the
    violation is kept)."""
    with (
        interruption.stoppable() as stopped,
        progress("looking back: {} states, {} to expand") as show,
    ):
        interruption.check()
        found = point_of_no_return(
            cluster, invariants or list(CHECKS.values()), events, AHEAD_MAX, progress=show
        )
    return None if stopped else ShownPointOfNoReturn(**found._asdict(), sentence=found.sentence)
