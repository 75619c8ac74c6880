"""What was noted of a watched engine: its requests and their tables, and what the event touches."""

from collections import Counter
from itertools import chain
from typing import Any

from vllm.v1.core.kv_cache_utils import get_block_hash, get_group_id

from kvproof.live import adapt
from kvproof.live.watch.contents import Contents
from kvproof.live.watch.flights import Flights
from kvproof.live.watch.happening import Happening
from kvproof.live.watch.history import History
from kvproof.live.watch.shape import Shape
from kvproof.live.watch.slices import Slices, Watched
from kvproof.live.watch.tokens import tokens_of
from kvproof.model.state import Engine
from kvproof.model.step import Allocation, Read


class Noted:
    """`touched` are the requests, and `blocks` the blocks, that the event touches; `mapped_now` are
    blocks that it puts into the hash map; `admitted` the requests that it admits; `reads` what
    these read and do not find; `gone` the requests that it ends; `event` what else it does.
    `current` is the request that vLLM is at work on. `unjudged` counts what was not judged because
    it is not known."""

    def __init__(self, scheduler: Any, shape: Shape) -> None:
        self.scheduler = scheduler
        self.shape = shape
        self.cluster = shape.cluster
        self.cfg = shape.engine
        self.managers = shape.managers
        self.contents = Contents(self.cfg)
        self.slices = Slices(scheduler, shape, self.contents)
        self.history = History()
        self.requests: dict[str, Watched] = {}
        self.touched: dict[str, None] = {}
        self.blocks: set[int] = set()
        self.mapped_now: set[int] = set()
        self.admitted: list[Watched] = []
        self.reads: list[Read] = []
        self.allocations: list[Allocation] = []
        self.current: Any = None
        self.event = Happening()
        self.flights = Flights(scheduler, shape.steps_most)
        self.unjudged: Counter[str] = Counter()
        self.gone: dict[str, Watched] = {}
        self._slices: dict[str, Engine] = {}
        for live in scheduler.requests.values():
            self.meet(live)
            self.refresh(live.request_id)

    def clear(self) -> None:
        """An event is over."""
        self.event = Happening()
        for each in (self.touched, self.blocks, self.mapped_now, self.gone, self._slices):
            each.clear()
        for some in (self.admitted, self.reads, self.allocations):
            some.clear()

    def meet(self, live: Any) -> None:
        """A request arrives."""
        self.requests[live.request_id] = Watched(live, tokens_of(live), len(self.managers))

    def touched_requests(self) -> list[Watched]:
        """The requests that the event touches."""
        return [self.requests[name] for name in self.touched if name in self.requests]

    def request(self, watched: Watched) -> Engine:
        """The part of the engine that is one request."""
        name = watched.live.request_id
        if name not in self._slices:
            self._slices[name] = self.slices.of_request(watched)
        return self._slices[name]

    def refresh_all(self) -> None:
        """Read what the event touches again. A request that has ended holds nothing any more."""
        known = self.scheduler.requests
        if len(known) != len(self.requests):
            self.touched.update((name, None) for name in self.requests if name not in known)
        for name in self.touched:
            self.refresh(name)

    def refresh(self, name: str) -> None:
        """Read the tokens and the block tables of a request again."""
        watched = self.requests.get(name)
        if watched is None:
            return
        watched.know()
        known = name in self.scheduler.requests
        held = [list(each.req_to_blocks.get(name, ()) if known else ()) for each in self.managers]
        holders = self.slices.holders
        for old, new in zip(watched.tables, held, strict=True):
            same = len(old) if new[: len(old)] == old else 0  # most tables only grow
            if same < len(old):
                self.event.tables.setdefault(name, watched.tables)
            for block in old[same:]:
                if not block.is_null:
                    holders.remove(block.block_id, name)
                    self.blocks.add(block.block_id)
            for block in new[same:]:
                if not block.is_null:
                    holders.add(block.block_id, name)
                    self.blocks.add(block.block_id)
        watched.tables = held
        if not any(held):
            watched.hit = watched.external = 0
        if not known:
            self.gone[name] = self.requests.pop(name)

    def name(self, key: Any) -> None:
        """Note which tokens a key stands for: those of the request whose blocks are cached."""
        watched = None if self.current is None else self.requests.get(self.current.request_id)
        if watched is None:
            return
        self.touched[self.current.request_id] = None
        index, value = get_group_id(key), get_block_hash(key)
        unit, ahead = self.cfg.hash_unit, self.cfg.hash_lookahead_tokens
        for size in dict.fromkeys((self.cfg.groups[index].block_size, unit)):
            whole = adapt.hashes_for(self.current.block_hashes, unit, size)
            likely = min(watched.named.get((index, size), 0), len(whole))
            for position in chain(range(likely, len(whole)), range(likely)):
                if whole[position] == value:
                    watched.named[index, size] = position + 1
                    self.slices.named[key] = watched.tokens
                    self.slices.ends[key] = (position + 1) * size + ahead
                    return
