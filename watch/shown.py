"""This module says what a watcher shows of an engine: views of what an event touches, each with the
facts that it has. A view is asked each check that needs only these facts."""

from enum import Enum
from typing import NamedTuple

from kvproof.invariants.check import Check
from kvproof.invariants.registry import CHECKS, lacking
from kvproof.model.needs import Need


class View(NamedTuple):
    """One view: what it is about, in a sentence, and the facts that it shows."""

    about: str
    shows: frozenset[Need]

    @property
    def checks(self) -> tuple[Check, ...]:
        """The checks that this view is asked."""
        return tuple(each for each in CHECKS.values() if self.shows.issuperset(each.needs))


def _view(about: str, *shows: Need) -> View:
    return View(about, frozenset(shows))


class Views(Enum):
    """All views, in the order in which they are asked about."""

    BLOCKS = _view(
        "The blocks that an event touches, with all requests that hold them and all their keys.",
        *(Need.BLOCKS, Need.REFERENCES, Need.NULL_BLOCK),
    )
    ALLOCATIONS = _view(
        "All allocations of a step, with what was predicted for them.", Need.PREDICTIONS
    )
    READS = _view(
        "What each request reads and does not find in the step that it begins with, through the "
        "block tables that the worker gets.",
        *(Need.TOKEN_READS, Need.STATE_READS, Need.NULL_BLOCK),
    )
    BATCH = _view(
        "The batch of a step: its size, and the requests that compute beyond their known tokens.",
        Need.BATCH,
    )
    COUNTS = _view(
        "The requests of a step whose computed tokens after it are not those that the worker "
        "receives, with the tokens of the step.",
        Need.CHANGED_COUNTS,
    )
    ADMITTED = _view(
        "The requests that a step admits or whose load it finishes, as they were before.",
        Need.ADMITTED,
    )
    GAINED = _view(
        "The blocks whose reference count an event changes that is no step.",
        Need.GAINED_REFERENCES,
    )
    ENTRIES = _view(
        "The cache entries that an event loses, with the blocks that it takes.", Need.LOST_ENTRIES
    )
    WRITES = _view(
        "The blocks that requests write into and that are cached, shared or the null block, with "
        "all requests that hold them.",
        Need.WRITES,
    )
    CACHED = _view(
        "The blocks that an event caches, with their content and the prefixes that their keys "
        "name.",
        Need.CONTENTS,
    )
    REQUESTS = _view(
        "The requests that an event touches, without the tokens at their beginning that are "
        "settled.",
        *(Need.TABLES, Need.LEFT_BEHIND, Need.WINDOWS_KEPT, Need.STATES_KEPT),
    )
    QUEUES = _view(
        "The requests that an event touches, with their places in the queues.",
        *(Need.QUEUES, Need.PROMPTS),
    )
    SETTLED = _view(
        "Each request that has lost blocks, with its steps in flight and what these use of the "
        "blocks.",
        Need.BLOCKS_IN_FLIGHT,
    )
    PLACEHOLDERS = _view(
        "The requests that an event touches, with their placeholders and their steps in flight.",
        Need.SAMPLES_IN_FLIGHT,
    )
    TRANSFERS = _view(
        "Each load and each send that an event touches, with the request that must keep the "
        "blocks.",
        Need.BLOCKS_IN_TRANSFER,
    )
    OFFERS = _view("The transfer parameters of a request that ends.", Need.OFFERS)
    FAILED_LOADS = _view(
        "Each request of a step of whose loaded blocks some were not filled, before and after the "
        "result of the step.",
        Need.FAILED_LOADS,
    )
    HITS = _view(
        "The hit of each admission, with the part of the cache that its tokens name.",
        *(Need.LOOKUPS, Need.HIT_BLOCKS),
    )
    REPEATED = _view(
        "The hit of each admission, with served prompts that share more than the hit.",
        *(Need.SERVED, Need.WINDOWS_KEPT),
    )
    ERASED = _view(
        "The erased blocks of a step, and those that it takes, with all requests that hold them.",
        *(Need.ERASED, Need.ERASED_FOR_STATES),
    )
    PLACES = _view(
        "The places in the worker's batch, as the scheduler's outputs say it: those of the "
        "requests that a step does not schedule, or all if they are too many.",
        Need.PLACES,
    )
    PROGRESS = _view("A step that schedules nothing, with all requests.", Need.EMPTY_STEPS)
    PRIORITY = _view(
        "The admissions and preemptions of a step, with the requests that ran and the first of "
        "those that wait on.",
        Need.PRIORITIES,
    )
    WATERMARK = _view(
        "The admissions of a step, and the number of blocks that it leaves free.", Need.WATERMARK
    )
    RESETS = _view(
        "A reset, with the number of cache entries and the computed tokens of all requests.",
        Need.RESETS,
    )
    MIRROR = _view(
        "The keys that have changed since events were taken last, and what a listener believes.",
        Need.EVENTS,
    )
    CARRIED = _view(
        "Each event of stored blocks, with the tokens of the request that has cached them, from "
        "its parent on.",
        Need.EVENT_TOKENS,
    )
    IDLE = _view(
        "The number of free blocks of an engine that has nothing to do any more.",
        Need.FREE_WHEN_IDLE,
    )
    KEPT = _view(
        "What the scheduler and its KV cache manager keep from one idle time to the next.",
        Need.KEPT_WHEN_IDLE,
    )
    DEATH = _view("Each exception that a step raises.", Need.DEATHS)


NOT_JUDGED = {
    name: f"It needs {needed}, which a watcher does not see."
    for name, check in CHECKS.items()
    if (needed := lacking(check, *(view.value.shows for view in Views)))
}
"""The checks that no watcher judges, with the reason."""

JUDGED = tuple(name for name in CHECKS if name not in NOT_JUDGED)
"""The checks that a watcher judges, if it has something to judge: the gravest invariant first."""
