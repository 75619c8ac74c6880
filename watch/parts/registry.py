"""All parts of an engine that are judged, in the order in which they are asked about."""

from kvproof.watch.parts.admissions import Hits
from kvproof.watch.parts.allocations import Allocations
from kvproof.watch.parts.blocks import TouchedBlocks
from kvproof.watch.parts.cached import CachedBlocks
from kvproof.watch.parts.changed import Gained, LostEntries
from kvproof.watch.parts.failed import FailedLoads
from kvproof.watch.parts.idle import IdleBlocks, KeptItems
from kvproof.watch.parts.in_flight import Placeholders, Settled
from kvproof.watch.parts.kv_events import Carried, Mirror
from kvproof.watch.parts.offers import Offers
from kvproof.watch.parts.part import Part
from kvproof.watch.parts.priority import Priority
from kvproof.watch.parts.queues import TouchedQueues
from kvproof.watch.parts.reads import Reads
from kvproof.watch.parts.requests import TouchedRequests
from kvproof.watch.parts.resets import Resets
from kvproof.watch.parts.served import Repeated
from kvproof.watch.parts.steps import Admissions, EmptyStep, Places, StepBatch, Watermark
from kvproof.watch.parts.transfers import Transfers
from kvproof.watch.parts.writes import Writes
from kvproof.watch.parts.zeroed import Zeroed

PARTS: tuple[type[Part], ...] = (
    TouchedBlocks,
    Allocations,
    Reads,
    StepBatch,
    Admissions,
    Gained,
    LostEntries,
    Writes,
    CachedBlocks,
    TouchedRequests,
    TouchedQueues,
    Settled,
    Placeholders,
    Transfers,
    Offers,
    FailedLoads,
    Hits,
    Repeated,
    Zeroed,
    Places,
    EmptyStep,
    Priority,
    Watermark,
    Resets,
    Mirror,
    Carried,
    IdleBlocks,
    KeptItems,
)
