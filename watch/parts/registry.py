"""This module lists all parts of an engine that are judged, in the order in which they are asked
about."""

from kvproof.watch.parts.admissions import Hits, Repeated
from kvproof.watch.parts.blocks import CachedBlocks, Gained, LostEntries, Resets, TouchedBlocks
from kvproof.watch.parts.idle import IdleBlocks, KeptItems
from kvproof.watch.parts.in_flight import FailedLoads, Placeholders, Settled
from kvproof.watch.parts.kv_events import Carried, Mirror
from kvproof.watch.parts.part import Part
from kvproof.watch.parts.priority import Priority
from kvproof.watch.parts.requests import Reads, TouchedQueues, TouchedRequests
from kvproof.watch.parts.steps import (
    Admissions,
    Allocations,
    EmptyStep,
    Places,
    StepBatch,
    StepCounts,
    Watermark,
)
from kvproof.watch.parts.transfers import Offers, Transfers
from kvproof.watch.parts.writes import Writes
from kvproof.watch.parts.zeroed import Zeroed

PARTS: tuple[type[Part], ...] = (
    TouchedBlocks,
    Allocations,
    Reads,
    StepBatch,
    StepCounts,
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
