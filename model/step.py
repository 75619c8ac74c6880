"""One step of a machine: the event, the states before and after it, and its effects."""

from collections.abc import Iterator
from typing import NamedTuple

from kvproof.model.events import Event
from kvproof.model.ghost_state import Served
from kvproof.model.kv_events import Report
from kvproof.model.state import Cached, Engine, State


class Read(NamedTuple):
    """A worker read one slot (attention) or one state (Mamba, slot 0) of a block.

    `expected` is the prefix that the request needs in the slot. `found` is the prefix in the slot,
    None where the block holds content of another group.
    """

    engine: str
    request: str
    group: int
    block: int
    slot: int
    expected: str
    found: str | None


class Admission(NamedTuple):
    """The scheduler admitted a request: `hit` and `external` are in tokens, `cached` is the cache
    at the look-up. `served` is ghost state: the prompts served before the look-up (see `ghost`).
    `dropped` are the last tokens of the prompt that were looked up, and then left to D."""

    engine: str
    request: str
    tokens: str
    route: str
    hit: int
    external: int
    cached: Cached
    served: tuple[Served, ...] = ()
    dropped: str = ""


class Allocation(NamedTuple):
    """The number of blocks that a request was predicted to take from the free queue, and the number
    that it took."""

    engine: str
    request: str
    predicted: int
    taken: int


class BlockRefusal(NamedTuple):
    """A request got no blocks: `KVCacheManager.allocate_slots` of vLLM found that it needs more
    blocks than are free. Both numbers are vLLM's own."""

    engine: str
    request: str
    needed: int
    free: int


class Copy(NamedTuple):
    """The worker copied a whole block before it computed the step (see `partial_block_hits`)."""

    engine: str
    source: int
    target: int


class Kept(NamedTuple):
    """A container of an idle engine has `items` more entries than when the engine was new, and the
    next step did not take them. At the idle time before there were `before` such entries, of which
    `same` are still there. `where` is the container's path from the scheduler."""

    engine: str
    where: str
    items: int
    before: int = 0
    same: int = 0

    @property
    def grew(self) -> bool:
        """Whether all entries of the idle time before are still there, and further ones."""
        return 0 < self.before == self.same < self.items


class Effects(NamedTuple):
    """The effects of one event, in order. `resets` has the engines whose cache was reset.

    After a scheduler step, `places` has the requests for which the worker keeps a place in its
    batch, and `zeroed` the blocks that it erased before it computed the step. Both are None for any
    other event. `kept` has the entries that an engine without requests still keeps although nothing
    needs them. `refused` are the requests that got no blocks in a step; only vLLM counts these.
    `unpublished` has the engines that keep KV events back after the event; the model keeps none.
    """

    reads: tuple[Read, ...] = ()
    admissions: tuple[Admission, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    reports: tuple[Report, ...] = ()
    copies: tuple[Copy, ...] = ()
    resets: tuple[str, ...] = ()
    places: tuple[str, ...] | None = None
    zeroed: tuple[int, ...] | None = None
    kept: tuple[Kept, ...] = ()
    refused: tuple[BlockRefusal, ...] = ()
    unpublished: tuple[str, ...] = ()


class Step(NamedTuple):
    """A transition. For a `Schedule`, `event` has the choices of the scheduler."""

    before: State
    event: Event
    effects: Effects
    after: State

    @property
    def touched(self) -> Iterator[tuple[Engine, Engine]]:
        """The engine of the event, and each engine that it may have changed, before and after the
        step. Any other engine is the same object before and after it, and is not looked at."""
        own = getattr(self.event, "engine", None)
        for before, after in zip(self.before.engines, self.after.engines, strict=True):
            if before is not after or before.name == own:
                yield before, after

    @property
    def changed_transfers(self) -> Iterator[str]:
        """The names of the transfers that the step began, changed or ended, each once."""
        old, new = self.before.transfers, self.after.transfers
        gone = [transfer for transfer in old if transfer not in new]
        come = [transfer for transfer in new if transfer not in old]
        return iter(dict.fromkeys(transfer.request for transfer in (*gone, *come)))
