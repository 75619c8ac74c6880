"""One step of a machine: the event, the states around it, and what happened on the way."""

from typing import NamedTuple

from kvproof.model.events import Event
from kvproof.model.ghost_state import Served
from kvproof.model.kv_events import Report
from kvproof.model.state import Cached, State


class Read(NamedTuple):
    """A worker read one slot (attention) or one state (Mamba, slot 0) of a block.

    `expected` is the prefix the request needed there, `found` the one the block held, None where
    the block holds content of another group.
    """

    engine: str
    request: str
    group: int
    block: int
    slot: int
    expected: str
    found: str | None


class Admission(NamedTuple):
    """A request got its first blocks: what it hit, and the cache as it was looked up. `served` is
    ghost state: what was served then (see `ghost`)."""

    engine: str
    request: str
    tokens: str
    route: str
    hit: int
    external: int
    cached: Cached
    served: tuple[Served, ...] = ()


class Allocation(NamedTuple):
    """Blocks a request was predicted to take from the free queue, and those it took."""

    engine: str
    request: str
    predicted: int
    taken: int


class Copy(NamedTuple):
    """The worker copied a whole block before the step computed (see `partial`)."""

    engine: str
    source: int
    target: int


class Effects(NamedTuple):
    """What happened during one event, in order. `resets` are the engines that said they have reset
    their cache."""

    reads: tuple[Read, ...] = ()
    admissions: tuple[Admission, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    reports: tuple[Report, ...] = ()
    copies: tuple[Copy, ...] = ()
    resets: tuple[str, ...] = ()


class Step(NamedTuple):
    """A transition. For a `Schedule`, `event` holds what was chosen."""

    before: State
    event: Event
    effects: Effects
    after: State
