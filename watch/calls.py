"""These hooks note what the calls inside an event of a watched engine do. They judge nothing."""

from collections.abc import Iterable
from itertools import chain
from typing import Any

from vllm.v1.core.kv_cache_utils import get_group_id

from kvproof.live.observer.calls import RUNNING, Noting, ServingCalls
from kvproof.live.observer.hooks import Hook, Hooks
from kvproof.model.events import Admit
from kvproof.model.state import Lists
from kvproof.watch.event_notes import AdmittedRequest, CacheLookup, EventNotes
from kvproof.watch.notes import EngineNotes
from kvproof.watch.worker import WatchedWorker


class Calls(ServingCalls):
    """Add hooks around the methods that events of one engine call. `map` is the hash map. `entries`
    are the blocks whose bytes are watched (`bytes.entries.WatchedBlocks`); None where none are."""

    def __init__(self, notes: EngineNotes, worker: WatchedWorker) -> None:
        super().__init__(notes.scheduler, notes.cfg.name)
        self.notes = notes
        self.worker = worker
        self.cfg = notes.cfg
        self.slices = notes.slices
        self.contents = notes.contents
        self.map: Any = None
        self.entries: Any = None
        self._taken: list[int] = []
        self._changes = self._changes_seen = self._before = self._since = 0

    @property
    def event(self) -> EventNotes:
        return self.notes.event

    def attach(self, hooks: Hooks) -> None:
        super().attach(hooks)
        pool = self.manager.block_pool
        hooks.add_short(self.manager, "cache_blocks", self.will_cache, self.has_cached)
        hooks.add(self.manager, "free", self.concerns)
        hooks.add(pool, "get_new_blocks", self.takes)
        hooks.add(pool, "free_blocks", self.gives_back)
        hooks.add(pool, "touch", self.touches)
        not_everywhere: tuple[tuple[Any, str, Hook], ...] = (  # nor is what they do
            (self.scheduler, "_handle_invalid_blocks", self.invalid),
            (self.scheduler, "_connector_finished", self.ends),
            (self.manager, "pop_blocks_for_free", self.concerns),
        )
        for owner, name, hook in not_everywhere:
            if hasattr(owner, name):
                hooks.add(owner, name, hook)

    def concerns(self, request: Any, *_: Any, **__: Any) -> Noting:
        self.request = request
        self.notes.touched[request.request_id] = None
        yield None

    def preempts(self, request: Any, *args: Any, **kwargs: Any) -> Noting:
        """Note that a request loses its blocks, and first what it has written into them: later this
        is not known."""
        watched = self.notes.requests.get(request.request_id)
        if watched is not None:
            watched.know()
            self.worker.write_up(watched)
        self.request = request
        self.notes.touched[request.request_id] = None
        yield from super().preempts(request, *args, **kwargs)

    def will_allocate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # the same as `super()` does, whose call would cost each request of each step
        request = self.request = args[0] if args else kwargs["request"]
        self.runs, self.fresh = request.status is RUNNING, False
        if not self.runs:
            self.may_admit(request)
        if self._taken:
            self._taken = []
        self._before = self._changes

    def may_admit(self, request: Any) -> None:
        super().may_admit(request)
        self._since = len(self.notes.event.keys)

    def has_allocated(self, allocated: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        predicted, taken = self.predicted, self.free - self.queue.num_free_blocks
        self.predicted = None
        unchanged = self._changes == self._changes_seen and not self.fresh
        if unchanged and predicted == 0 == taken and allocated is not None and self.runs:
            return  # most running requests need no block in a step
        event, name = self.notes.event, self.request.request_id
        self._changes_seen = self._changes
        if not unchanged:
            self.notes.touched[name] = None
        if allocated is None:
            event.needy = name
            if self._changes != self._before:
                self.notes.history.note("released", name)
            return
        chosen = self.chosen(args, kwargs)
        for choice in chosen:
            if isinstance(choice, Admit):
                self._admitted(choice)
        if self._taken or not self.runs:
            event.choices += chosen
        if self._taken:
            event.taken.setdefault(name, []).extend(self._taken)
        self.note_allocation(predicted, taken)

    def _admitted(self, choice: Admit) -> None:
        name, hit, external = choice.request, choice.local_hit, choice.external
        self._was(self.request)
        if external:
            self.notes.trust(1)
        if name in self.notes.requests:
            watched = self.notes.requests[name]
            watched.hit = watched.written = hit + self.request.num_computed_tokens
            watched.external = external
            watched.loads = self._taken_for_connector(name, watched.hit + external)
            self.notes.admitted.append(watched)
            self.notes.event.lookups.append(
                CacheLookup(watched, watched.hit, external, self._since)
            )

    def _was(self, request: Any) -> None:
        """Note a request before the step that admits it, or finishes its load, sets its status."""
        flights = self.notes.flights
        parts = tuple(part for part, _ in flights.of(request)) if flights.steps else ()
        name = request.request_id
        self.notes.event.admitted.append(AdmittedRequest(name, self.slices.status(request), parts))

    def _taken_for_connector(self, name: str, end: int) -> Lists:
        """Return the blocks that an admission took for tokens before `end`, by group: the connector
        fills them."""
        taken = set(self._taken)
        tables = (manager.req_to_blocks.get(name, ()) for manager in self.managers)
        return tuple(
            tuple(b.block_id for b in table[: -(-end // size)] if b.block_id in taken)
            for table, size in zip(tables, self.slices.sizes, strict=True)
        )

    def will_cache(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.request = args[0] if args else kwargs["request"]

    def has_cached(self, *_: Any) -> None:
        """Note a request whose blocks were cached, if it has anything new. Where steps overlap,
        each step calls this for each request, and most have nothing new."""
        notes, request = self.notes, self.request
        name = request.request_id
        watched = notes.requests.get(name)
        if watched is None:
            return
        placeholders = request.num_output_placeholders
        if (
            placeholders != watched.placeholders
            or request.num_computed_tokens < watched.computed
            or watched.counters != [e.num_cached_block.get(name, 0) for e in notes.managers]
        ):
            watched.placeholders = placeholders
            notes.touched[name] = None

    def loaded(self, request: Any, *args: Any, **kwargs: Any) -> Noting:
        name = request.request_id
        failed = name in self.scheduler.failed_recving_kv_req_ids
        if self.entries is not None:
            self.entries.loads.append((name, failed))
        self.request, self.notes.touched[name] = request, None
        self._was(request)
        if name in self.notes.requests and not failed:
            watched = self.notes.requests[name]
            self.notes.refresh(name)
            self.worker.load(
                watched, min(request.num_computed_tokens, watched.hit + watched.external)
            )
        yield from super().loaded(request, *args, **kwargs)

    def ends(self, request: Any, *_: Any, **__: Any) -> Noting:
        """Note the transfer parameters of a request that ends: its blocks may be kept for a
        transfer."""
        name, computed = request.request_id, request.num_computed_tokens
        self.notes.touched[name] = None
        _, params = yield None
        if params:
            self.notes.event.offers.append((name, computed, params))

    def reports(self, *_: Any, **__: Any) -> Noting:
        """Note the KV events that somebody takes from the pool."""
        found = yield None
        event = self.notes.event
        event.reports = [*(event.reports or ()), *(found or ())]

    def invalid(self, invalid: Iterable[int], scheduled: Any = (), *_: Any, **__: Any) -> Noting:
        """Note the blocks that a load has not filled, and the requests that loaded them."""
        blocks = set(invalid)
        self.notes.event.invalid = True
        for number in blocks:
            self.contents.undo(number, 0)
        for name in scheduled:
            watched = self.notes.requests.get(name)
            if watched is not None and any(map(blocks.intersection, watched.loads)):
                length = watched.live.num_output_tokens
                self.notes.event.spoiled.append((watched, length))
        yield None

    def takes(self, *_: Any, **__: Any) -> Noting:
        blocks = yield None
        self._changed(blocks)
        event = self.notes.event
        for block in blocks:
            self.contents.take(block.block_id)
            self._taken.append(block.block_id)
            event.fresh.append(block.block_id)
            if not event.in_step:
                event.references.setdefault(block.block_id, 0)

    def gives_back(self, ordered_blocks: Iterable[Any], *others: Any, **named: Any) -> Noting:
        blocks = list(ordered_blocks)
        self._changed(blocks)
        self._counts(blocks)
        for block in blocks:
            self.notes.touched.update(dict.fromkeys(self.slices.holders.of(block.block_id)))
        yield (blocks, *others), named

    def touches(self, blocks: Any, *_: Any, **__: Any) -> Noting:
        rows = blocks if blocks and isinstance(blocks[0], list | tuple) else (blocks,)
        self._changed(chain(*rows))
        self._counts(chain(*rows))
        yield None

    def _counts(self, blocks: Iterable[Any]) -> None:
        """Note the reference counts of blocks before an event other than a step changes them."""
        event = self.notes.event
        if not event.in_step:
            for block in blocks:
                event.references.setdefault(block.block_id, block.ref_cnt)

    def _changed(self, blocks: Iterable[Any]) -> None:
        """Note blocks whose reference counts change."""
        self._changes += 1
        self.notes.blocks.update(block.block_id for block in blocks)

    def will_map(self, args: tuple[Any, ...], _: Any) -> None:
        """Note the block that a key has before it changes."""
        key = args[0]
        block = self.map.get_one_block(key)
        self.notes.event.keys.append((key, None if block is None else block.block_id))

    def has_mapped(self, _: Any, args: tuple[Any, ...], __: Any) -> None:
        key, block = args
        number, notes = block.block_id, self.notes
        self.slices.mapped.put(number, key)
        notes.blocks.add(number)
        notes.mapped_now.add(number)
        notes.inserted[key, number] = self.request
        if self.request is not None:
            notes.touched[self.request.request_id] = None
        if self.entries is not None:
            group = get_group_id(key)
            size, tokens = self.slices.sizes[group], getattr(block, "block_hash_num_tokens", 0) or 0
            if not self.cfg.groups[group].attention or tokens % size == 0:
                self.entries.enters(number, group, tokens, key)

    def has_unmapped(self, removed: Any, args: tuple[Any, ...], _: Any) -> None:
        key, number = args
        if removed is not None:
            event, notes = self.notes.event, self.notes
            event.lost = len(event.keys) - 1 if event.lost is None else event.lost
            event.unmapped.append((key, number))
            self.slices.mapped.remove((number,), key)
            if key in self.slices.ends and self.map.get_one_block(key) is None:
                del self.slices.ends[key]
            for some in (notes.inserted, notes.named):
                some.pop((key, number), None)
            notes.blocks.add(number)
        if self.entries is not None and not self.slices.mapped.of(number):
            self.entries.leaves(number)
