"""This module says what a watcher shows of an engine: views of what an event touches, each with the
facts that it has. A view is asked each check that needs only these facts."""

from enum import Enum, unique

from kvproof.invariants.check import Check
from kvproof.invariants.registry import CHECKS, lacking
from kvproof.model.needs import Need


@unique
class Views(Enum):
    """All views, in the order in which they are asked about, each with the facts that it shows. The
    part with a view (`watch/parts/`) says what of the engine it is."""

    BLOCKS = frozenset({Need.BLOCKS, Need.REFERENCES, Need.NULL_BLOCK})
    ALLOCATIONS = frozenset({Need.PREDICTIONS})
    READS = frozenset({Need.TOKEN_READS, Need.STATE_READS, Need.NULL_BLOCK})
    BATCH = frozenset({Need.BATCH})
    COUNTS = frozenset({Need.CHANGED_COUNTS})
    ADMITTED = frozenset({Need.ADMITTED})
    GAINED = frozenset({Need.GAINED_REFERENCES})
    ENTRIES = frozenset({Need.LOST_ENTRIES})
    WRITES = frozenset({Need.WRITES})
    CACHED = frozenset({Need.CONTENTS})
    REQUESTS = frozenset({Need.TABLES, Need.LEFT_BEHIND, Need.WINDOWS_KEPT, Need.STATES_KEPT})
    QUEUES = frozenset({Need.QUEUES, Need.PROMPTS})
    SETTLED = frozenset({Need.BLOCKS_IN_FLIGHT})
    PLACEHOLDERS = frozenset({Need.SAMPLES_IN_FLIGHT})
    TRANSFERS = frozenset({Need.BLOCKS_IN_TRANSFER})
    OFFERS = frozenset({Need.OFFERS})
    FAILED_LOADS = frozenset({Need.FAILED_LOADS})
    HITS = frozenset({Need.LOOKUPS, Need.HIT_BLOCKS})
    REPEATED = frozenset({Need.SERVED, Need.WINDOWS_KEPT})
    ERASED = frozenset({Need.ERASED, Need.ERASED_FOR_STATES})
    PLACES = frozenset({Need.PLACES})
    PROGRESS = frozenset({Need.EMPTY_STEPS})
    PRIORITY = frozenset({Need.PRIORITIES})
    WATERMARK = frozenset({Need.WATERMARK})
    RESETS = frozenset({Need.RESETS})
    MIRROR = frozenset({Need.EVENTS})
    CARRIED = frozenset({Need.EVENT_TOKENS})
    IDLE = frozenset({Need.FREE_WHEN_IDLE})
    KEPT = frozenset({Need.KEPT_WHEN_IDLE})
    DEATH = frozenset({Need.DEATHS})

    @property
    def shows(self) -> frozenset[Need]:
        """The facts that this view shows."""
        return self.value

    @property
    def checks(self) -> tuple[Check, ...]:
        """The checks that this view is asked."""
        return tuple(each for each in CHECKS.values() if self.shows.issuperset(each.needs))


NOT_JUDGED = {
    name: f"It needs {needed}, which a watcher does not see."
    for name, check in CHECKS.items()
    if (needed := lacking(check, *(view.shows for view in Views)))
}
"""The checks that no watcher judges, with the reason."""

JUDGED = tuple(name for name in CHECKS if name not in NOT_JUDGED)
"""The checks that a watcher judges, if it has something to judge: the gravest invariant first."""
