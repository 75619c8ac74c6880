"""All parts of an engine that are judged, in the order in which they are asked about."""

from kvproof.live.watch.parts.admissions import Hits
from kvproof.live.watch.parts.allocations import Allocations
from kvproof.live.watch.parts.blocks import Blocks
from kvproof.live.watch.parts.cached import CachedBlocks
from kvproof.live.watch.parts.changed import Entries, Gained
from kvproof.live.watch.parts.failed import FailedLoads
from kvproof.live.watch.parts.idle import Idle, Kept
from kvproof.live.watch.parts.in_flight import Placeholders, Settled
from kvproof.live.watch.parts.kv_events import Carried, Mirror
from kvproof.live.watch.parts.offers import Offers
from kvproof.live.watch.parts.part import Part
from kvproof.live.watch.parts.priority import Priority
from kvproof.live.watch.parts.queues import Queues
from kvproof.live.watch.parts.reads import Reads
from kvproof.live.watch.parts.requests import Requests
from kvproof.live.watch.parts.resets import Resets
from kvproof.live.watch.parts.served import Repeated
from kvproof.live.watch.parts.steps import Admissions, Batch, Places, Progress, Watermark
from kvproof.live.watch.parts.transfers import Transfers
from kvproof.live.watch.parts.writes import Writes
from kvproof.live.watch.parts.zeroed import Zeroed

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
