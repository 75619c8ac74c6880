"""This module keeps what was noted of a watched engine: its requests with their tables, and what
the event touches."""

from collections import Counter, deque
from itertools import chain
from typing import Any

from vllm.v1.core.kv_cache_utils import get_block_hash, get_group_id

from kvproof.live import adapt
from kvproof.live.batch import Batch
from kvproof.live.observer import view
from kvproof.model.state import COUNTS, Engine, Flight, Request
from kvproof.watch.contents import Contents
from kvproof.watch.event_notes import EventNotes
from kvproof.watch.history import History
from kvproof.watch.shape import Shape
from kvproof.watch.slices import Named, Slices, WatchedRequest
from kvproof.watch.tokens import tokens_of
from kvproof.watch.worker import StartedRequest


class EngineNotes:
    """The notes of one watched engine. `touched` are the requests, and `blocks` the blocks, that
    the event touches; `inserted` are the keys and blocks that it puts into the hash map, with the
    request that vLLM was at work on, `named` what these keys stand for, and `nameless` the number
    of keys of which this is not known; `admitted` the requests that it admits; `started` those that
    begin in the step; `gone` the requests that it ends; `event` what else it does. `unjudged`
    counts what was not judged because it is not known, and `trusted` what is taken to be right."""

    def __init__(self, scheduler: Any, shape: Shape) -> None:
        self.scheduler = scheduler
        self.shape = shape
        self.cluster = shape.cluster
        self.cfg = shape.engine
        self.managers = shape.managers
        self.contents = Contents(self.cfg, self.cfg.num_blocks)
        self.slices = Slices(scheduler, shape, self.contents)
        self.history = History(from_start=_is_new(scheduler))
        self.requests: dict[str, WatchedRequest] = {}
        self.touched: dict[str, None] = {}
        self.blocks: set[int] = set()
        self.mapped_now: set[int] = set()
        self.inserted: dict[tuple[Any, int], Any] = {}
        self.named: dict[tuple[Any, int], Named] = {}
        self.nameless = 0
        self.admitted: list[WatchedRequest] = []
        self.started: list[StartedRequest] = []
        self.event = EventNotes()
        self.flights = Flights(scheduler, shape.steps_most)
        self.unjudged: Counter[str] = Counter()
        self.trusted: Counter[str] = Counter()
        self.gone: dict[str, WatchedRequest] = {}
        self._parts: dict[str, Request] = {}
        self._touched: Engine | None = None
        for live in scheduler.requests.values():
            self.meet(live)
            self.refresh(live.request_id)

    def clear(self) -> None:
        """Clear the notes of an event that is over."""
        self.event = EventNotes()
        self.nameless, self._touched = 0, None
        for each in (self.touched, self.blocks, self.mapped_now, self.gone, self._parts):
            each.clear()
        for some in (self.inserted, self.named, self.admitted, self.started):
            some.clear()

    @property
    def is_idle(self) -> bool:
        """Whether the engine has nothing to do any more."""
        return not self.scheduler.requests and not self.flights.steps

    def trust(self, loads: int) -> None:
        """Count more loads of the connector that are taken to be right."""
        self.trusted[f"of {type(self.scheduler.connector).__name__}"] += loads

    def meet(self, live: Any) -> None:
        """Begin to follow a request that arrives."""
        self.requests[live.request_id] = WatchedRequest(live, tokens_of(live), len(self.managers))

    def touched_requests(self) -> list[WatchedRequest]:
        """Return the requests that the event touches."""
        return [self.requests[name] for name in self.touched if name in self.requests]

    def request(self, watched: WatchedRequest) -> Request:
        """Return a request as the invariants see it."""
        name = watched.live.request_id
        if name not in self._parts:
            self._parts[name] = self.slices.request(watched)
        return self._parts[name]

    def touched_part(self) -> Engine:
        """Return the part of the engine that consists of the requests that the event touches."""
        if self._touched is None:
            self._touched = self.slices.of_requests(
                tuple(map(self.request, self.touched_requests()))
            )
        return self._touched

    def refresh_all(self) -> None:
        """Read what the event touches again. A request that has ended holds nothing any more."""
        known = self.scheduler.requests
        if len(known) != len(self.requests):
            self.touched.update((name, None) for name in self.requests if name not in known)
        self.name_inserted()
        for name in self.touched:
            self.refresh(name)

    def refresh(self, name: str) -> None:
        """Read the tokens, the counters and the block tables of a request again."""
        watched = self.requests.get(name)
        if watched is None:
            return
        watched.know()
        watched.computed = watched.live.num_computed_tokens
        watched.counters = [each.num_cached_block.get(name, 0) for each in self.managers]
        known = name in self.scheduler.requests
        held = [list(each.req_to_blocks.get(name, ()) if known else ()) for each in self.managers]
        holders = self.slices.holders
        for group, (old, new) in enumerate(zip(watched.tables, held, strict=True)):
            self.history.table(name, group, old, new)
            same = len(old) if new[: len(old)] == old else 0  # most tables only grow
            if same < len(old):
                self.event.tables.setdefault(name, watched.tables)
                left = [block.block_id for block in old if not block.is_null]
                holders.remove(left, name)
                self.blocks.update(left)
                for number in left:
                    self.contents.leave(number)
            got = [block.block_id for block in new[same:] if not block.is_null]
            holders.add(got, name)
            self.blocks.update(got)
            if self.event.unmapped:
                self.event.takers.update(dict.fromkeys(got, group))
        watched.tables = held
        if not any(held):
            watched.hit, watched.external, watched.loads = 0, 0, ()
        if not known:
            self.gone[name] = self.requests.pop(name)

    def name_inserted(self) -> None:
        """Find out what the keys stand for that came into the hash map: the tokens of the request
        whose blocks are cached, mostly up to the end of its next block."""
        groups, unit = self.cfg.groups, self.cfg.hash_block_size
        ahead = self.cfg.hash_lookahead_tokens
        for (key, number), live in self.inserted.items():
            watched = None if live is None else self.requests.get(live.request_id)
            end, index, value = 0, get_group_id(key), get_block_hash(key)
            if watched is not None:
                size = groups[index].block_size
                hashes = adapt.hashes_for(live.block_hashes, unit, size)
                at = watched.named.get(index, 0)
                if at < len(hashes) and hashes[at] == value:
                    watched.named[index] = at + 1
                    end = (at + 1) * size
                else:
                    end = self._end(watched, index, value)
            if watched is None or not end:
                self.nameless += 1
                continue
            if end % size:
                self.slices.ends[key] = end + ahead
            self.named[key, number] = Named(number, index, watched, end + ahead)
        self.inserted.clear()

    def _end(self, watched: WatchedRequest, index: int, value: Any) -> int:
        """Return the number of tokens with this hash: those of whole blocks of a group, or of the
        unit of hashes. It is 0 if the request has no such hash."""
        unit, own = self.cfg.hash_block_size, self.cfg.groups[index].block_size
        for size in dict.fromkeys((own, unit)):
            hashes = adapt.hashes_for(watched.live.block_hashes, unit, size)
            likely = min(watched.named.get(index, 0), len(hashes)) if size == own else 0
            for at in chain(range(likely, len(hashes)), range(likely)):
                if hashes[at] == value:
                    if size == own:
                        watched.named[index] = at + 1
                    return (at + 1) * size
        return 0


def _is_new(scheduler: Any) -> bool:
    """Whether nothing has happened to an engine: it has no request, and each block is free (but the
    null block) and was never cached."""
    pool = scheduler.kv_cache_manager.block_pool
    unused = pool.get_num_free_blocks() == len(pool.blocks) - 1
    return unused and not scheduler.requests and not len(pool.cached_block_hash_to_block)


class Flights:
    """Keep the steps in flight, oldest first, as the scheduler's outputs.

    An engine gets the results of the steps in their order. Where a test does otherwise, `known` is
    false from then on.
    """

    def __init__(self, scheduler: Any, steps_most: int) -> None:
        self.scheduler = scheduler
        self.steps_most = steps_most
        self.steps: deque[Any] = deque()
        self.known = not scheduler.requests

    def dispatched(self, output: Any) -> None:
        """Note that a step is dispatched."""
        if output.num_scheduled_tokens:
            self.steps.append(output)
        if len(self.steps) > self.steps_most:
            self.known = False
            self.steps.popleft()

    def arrived(self, output: Any) -> None:
        """Note that the result of a step arrives."""
        if not output.num_scheduled_tokens:
            return
        if self.steps and self.steps[0] is output:
            self.steps.popleft()
        else:
            self.known = False

    def of(self, live: Any) -> list[tuple[Flight, int]]:
        """Return the parts that a request has of the steps in flight, with the fate of each, and
        the number of tokens computed before it. A part samples if it reaches the end of the tokens
        that are known, or that parts before it sample."""
        name = live.request_id
        steps = [each for each in self.steps if name in each.num_scheduled_tokens]
        shares = [Flight(name, each.num_scheduled_tokens[name], samples=False) for each in steps]
        shares = view.fates(self.scheduler, name, shares)
        counted = sum(share.tokens for share in shares if share.fate == COUNTS)
        end, known = live.num_computed_tokens - counted, live.num_tokens
        found = []
        for step, share in zip(steps, shares, strict=True):
            if share.fate == COUNTS:
                start, end = end, end + share.tokens
                ahead = len(step.scheduled_spec_decode_tokens.get(name, ()))
                samples = end >= known
                known += (1 + ahead) if samples else 0
                found.append((share._replace(samples=samples, ahead=ahead), start))
            else:
                found.append((share, Batch.starts(step)[name]))
        return found
