"""All parts of an engine that are judged, in the order in which they are asked about."""

from kvproof.watch.parts.admissions import Hits
from kvproof.watch.parts.allocations import Allocations
from kvproof.watch.parts.blocks import Blocks
from kvproof.watch.parts.cached import CachedBlocks
from kvproof.watch.parts.changed import Entries, Gained
from kvproof.watch.parts.failed import FailedLoads
from kvproof.watch.parts.idle import Idle, Kept
from kvproof.watch.parts.in_flight import Placeholders, Settled
from kvproof.watch.parts.kv_events import Carried, Mirror
from kvproof.watch.parts.offers import Offers
from kvproof.watch.parts.part import Part
from kvproof.watch.parts.priority import Priority
from kvproof.watch.parts.queues import Queues
from kvproof.watch.parts.reads import Reads
from kvproof.watch.parts.requests import Requests
from kvproof.watch.parts.resets import Resets
from kvproof.watch.parts.served import Repeated
from kvproof.watch.parts.steps import Admissions, Batch, Places, Progress, Watermark
from kvproof.watch.parts.transfers import Transfers
from kvproof.watch.parts.writes import Writes
from kvproof.watch.parts.zeroed import Zeroed

PARTS: tuple[type[Part], ...] = (
    Blocks,
    Allocations,
    Reads,
    Batch,
    Admissions,
    Gained,
    Entries,
    Writes,
    CachedBlocks,
    Requests,
    Queues,
    Settled,
    Placeholders,
    Transfers,
    Offers,
    FailedLoads,
    Hits,
    Repeated,
    Zeroed,
    Places,
    Progress,
    Priority,
    Watermark,
    Resets,
    Mirror,
    Carried,
    Idle,
    Kept,
)
