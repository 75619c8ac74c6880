"""This module has the notes of one event: what it does, as vLLM's calls say it."""

from typing import Any, NamedTuple

from kvproof.live.observer.calls import CallNotes
from kvproof.model.state import Flight


class AdmittedRequest(NamedTuple):
    """How a request was before it was admitted, or before its load was finished: its status, and
    its parts of the steps in flight."""

    request: str
    status: str
    flights: tuple[Flight, ...]


class CacheLookup(NamedTuple):
    """An admission after a look-up of the cache: the hit and the tokens of the connector, and the
    number of the first key that changes after it (`since`)."""

    watched: Any
    hit: int
    external: int
    since: int


class EventNotes(CallNotes):
    """The notes of the event that runs now.

    `what` is the name of its method, with `args`, `named` and `result`. `running` were the running
    requests, `free` the number of free blocks and `cached` that of cache entries before it.
    `choices` leave out the tokens of a running request that takes no block. `taken` are the blocks
    that a request takes. `tables` are the earlier block tables of requests that have lost a block.
    `keys` are the keys that change in the hash map, each with the block that it had before; at the
    change `lost` the first entry is lost. `lookups` are the admissions, and `found` is what each
    request found in the cache then. `offers` are the transfer parameters of requests that end, with
    their computed tokens. `spoiled` are requests of the step whose load has failed, with the length
    of their answer before. `reports` are the KV
    events that are taken from the pool, None if nobody takes any. `writes` are those of requests
    into blocks that are cached or shared. `admitted` are the requests that are admitted or whose
    load is finished, as they were before. `fresh` are the blocks that were taken from the free
    queue, `unmapped` the keys that lost a block, and `takers` the groups that got blocks in an
    event that unmaps keys, by block. `references` are the earlier reference counts of blocks, if
    the event is no step (`in_step`). `invalid` says that blocks of a load were not filled.
    """

    def __init__(self) -> None:
        super().__init__()
        self.started = False
        self.what = ""
        self.args: tuple[Any, ...] = ()
        self.named: dict[str, Any] = {}
        self.result: Any = None
        self.running: list[Any] = []
        self.free = 0
        self.cached = 0
        self.taken: dict[str, list[int]] = {}
        self.tables: dict[str, list[list[Any]]] = {}
        self.keys: list[tuple[Any, int | None]] = []
        self.lost: int | None = None
        self.lookups: list[CacheLookup] = []
        self.found: dict[str, Any] = {}
        self.writes: list[Any] = []
        self.reports: list[Any] | None = None
        self.offers: list[tuple[str, int, Any]] = []
        self.spoiled: list[tuple[Any, int]] = []
        self.admitted: list[AdmittedRequest] = []
        self.fresh: list[int] = []
        self.unmapped: list[tuple[Any, int]] = []
        self.takers: dict[int, int] = {}
        self.references: dict[int, int] = {}
        self.in_step = self.invalid = False

    def had(self, since: int) -> dict[Any, int | None]:
        """Return the block that each key had before the change number `since`, for the keys that
        change from there on."""
        had: dict[Any, int | None] = {}
        for key, block in self.keys[since:]:
            had.setdefault(key, block)
        return had
