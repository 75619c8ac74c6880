"""An observer of one scheduler: it notes what each event touches, and lets that be judged.

Nothing of vLLM is changed: its methods are called as they are, and their results are returned.
"""

from collections.abc import Generator, Iterable
from itertools import chain
from typing import Any

from kvproof.live import adapt
from kvproof.live.watch.audit import IDLE_BLOCKS, Rounds
from kvproof.live.watch.hooks import After, Before, Hook, Hooks
from kvproof.live.watch.judge import AT_IDLE, Judge
from kvproof.live.watch.noted import Noted
from kvproof.live.watch.shape import Unknown, shape
from kvproof.live.watch.slices import RUNNING
from kvproof.live.watch.tokens import tokens_of
from kvproof.live.watch.worker import Worker
from kvproof.model.step import Allocation

Noting = Generator[tuple[Any, ...] | None, Any, None]

STEPS = ("schedule", "update_from_output")
"""The methods in which an exception ends the engine."""

NOT_EVERYWHERE = ("pop_blocks_for_free", "_update_request_as_session", "_handle_invalid_blocks")
"""Methods that older releases do not have, nor what they do."""


class Observer:
    """Watches one scheduler from now on. Raises Unknown where its kind of engine is not known."""

    def __init__(self, scheduler: Any, judge: Judge, name: str = "E") -> None:
        self.scheduler = scheduler
        self.judge = judge
        self.noted = Noted(scheduler, shape(scheduler, name))
        self.cfg = self.noted.cfg
        self.slices = self.noted.slices
        self.contents = self.noted.contents
        self.worker = Worker(self.slices, self.contents)
        self.free = self.slices.pool.free_block_queue
        self.hooks = Hooks(self._ended, judge.failed, judge.stopped, judge.passed_on)
        self.rounds = Rounds(self.cfg.num_blocks)
        self._predicted: tuple[int, int] | None = None
        self._changes = self._changes_seen = 0
        self._fresh = False
        self._output: Any = None
        self._steps_in_flight = 0
        if holds_blocks(scheduler.connector):
            why = "the connector holds references to blocks, too"
            judge.skipped |= dict.fromkeys(("references_are_exact", *AT_IDLE), why)
        self._attach()

    def _attach(self) -> None:
        scheduler, manager = self.scheduler, self.scheduler.kv_cache_manager
        pool = manager.block_pool
        events: list[tuple[Any, str, Hook]] = [
            (scheduler, "add_request", self._arrives),
            (scheduler, "schedule", self._schedules),
            (scheduler, "update_from_output", self._completes),
            (scheduler, "finish_requests", self._anything),
            (scheduler, "reset_prefix_cache", self._anything),
            (manager, "evict_blocks", self._anything),
            (manager, "reset_prefix_cache", self._anything),
        ]
        parts: list[tuple[Any, str, Hook]] = [
            (scheduler, "_preempt_request", self._concerns),
            (scheduler, "_update_request_as_session", self._goes_on),
            (scheduler, "_update_waiting_for_remote_kv", self._loaded),
            (scheduler, "_handle_invalid_blocks", self._invalid),
            (manager, "free", self._concerns),
            (manager, "pop_blocks_for_free", self._concerns),
            (pool, "get_new_blocks", self._takes),
            (pool, "free_blocks", self._gives_back),
            (pool, "touch", self._touches),
        ]
        short: list[tuple[Any, str, Before | None, After]] = [
            (manager, "allocate_slots", self._will_allocate, self._has_allocated),
            (manager, "cache_blocks", self._will_cache, self._has_cached),
            (manager.coordinator, "get_num_blocks_to_allocate", None, self._has_predicted),
        ]
        needed = [(owner, name) for owner, name, _ in (*events, *parts)]
        needed += [(owner, name) for owner, name, *_ in short]
        for owner, name in needed:
            if not hasattr(owner, name) and name not in NOT_EVERYWHERE:
                raise Unknown(f"it has no {type(owner).__name__}.{name}")
        for owner, name, hook in (*events, *parts):
            if hasattr(owner, name):
                self.hooks.add(owner, name, hook, event=(owner, name, hook) in events)
        for owner, name, before, after in short:
            self.hooks.add_short(owner, name, before, after)
        self._watch_map()

    def _watch_map(self) -> None:
        """Watch the hash map. A reset of the cache makes another one, which is empty."""
        self.map = self.slices.pool.cached_block_hash_to_block
        self.hooks.add_short(self.map, "insert", None, self._has_inserted)
        self.hooks.add_short(self.map, "pop", None, self._has_popped)
        self.noted.blocks.update(self.slices.mapped)
        self.slices.mapped.clear()

    # Events.

    def _ended(self, what: str, error: Exception | None) -> None:
        """An event is over: what it has touched is judged."""
        noted = self.noted
        noted.history.end(what)
        if error is not None:
            if what in STEPS:
                self.judge.died(noted, what, error)
            return
        self._judge(what)

    def _judge(self, what: str) -> None:
        noted, scheduler = self.noted, self.scheduler
        if self.slices.pool.cached_block_hash_to_block is not self.map:
            self._watch_map()
        noted.refresh_all()
        if self._output is not None:
            requests = noted.touched_requests()
            noted.reads += self.worker.execute(self._output, noted.admitted, requests)
            self._output = None
        self.slices.deferred = [
            block.block_id for _, blocks in adapt.deferred_frees(scheduler)[1] for block in blocks
        ]
        noted.idle = not scheduler.requests and not self._steps_in_flight
        if what == "schedule" or noted.idle:
            noted.blocks.update(self.rounds.next(idle=noted.idle))
        try:
            self.judge.look(noted, what)
        finally:
            noted.clear()

    def audit(self) -> None:
        """Judge all blocks and all requests, unless an event is going on."""
        if not self.hooks.depth:
            self.hooks.guarded(self._audit)

    def _audit(self) -> None:
        self.slices.read_map()
        self.noted.touched.update(dict.fromkeys(self.noted.requests))
        for begin in range(0, self.cfg.num_blocks, IDLE_BLOCKS):
            self.noted.blocks.update(range(begin, min(begin + IDLE_BLOCKS, self.cfg.num_blocks)))
            self._judge("audit")
        self.noted.history.end("audit")

    def _anything(self, *args: Any, **__: Any) -> Noting:
        self.noted.history.note = args[0] if args else None
        yield None

    def _arrives(self, request: Any, *_: Any, **__: Any) -> Noting:
        self.noted.history.note = {request.request_id: f"{request.num_prompt_tokens} tokens"}
        if request.num_computed_tokens:
            self.hooks.stop("a request arrived with computed tokens")
        yield None
        if self.scheduler.requests.get(request.request_id) is request:
            self.noted.meet(request)

    def _goes_on(self, session: Any, *_: Any, **__: Any) -> Noting:
        """The next part of a session replaces what was answered last."""
        self.noted.name_inserted()
        yield None
        if session.request_id in self.noted.requests:
            self.noted.requests[session.request_id].tokens = tokens_of(session)

    def _schedules(self, *_: Any, **__: Any) -> Noting:
        output = yield None
        self.noted.history.note = output.num_scheduled_tokens
        self._output = output
        self._steps_in_flight += bool(output.num_scheduled_tokens)

    def _completes(self, output: Any, *_: Any, **__: Any) -> Noting:
        yield None
        if output.num_scheduled_tokens and self._steps_in_flight:
            self._steps_in_flight -= 1
        for watched in self.noted.touched_requests():
            watched.know()
            if any(watched.tables):
                self.worker.write_up(watched)

    # Calls inside events.

    def _concerns(self, request: Any, *_: Any, **__: Any) -> Noting:
        self.noted.current = request
        self.noted.touched[request.request_id] = None
        yield None

    def _has_predicted(self, blocks: int, _: Any, kwargs: dict[str, Any]) -> None:
        if not kwargs.get("apply_admission_cap"):
            self._predicted = blocks, self.free.num_free_blocks

    def _will_allocate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        request = self.noted.current = args[0] if args else kwargs["request"]
        self._fresh = request.status is not RUNNING and not any(
            each.req_to_blocks.get(request.request_id) for each in self.noted.managers
        )

    def _has_allocated(self, allocated: Any, _: Any, kwargs: dict[str, Any]) -> None:
        noted, predicted, request = self.noted, self._predicted, self.noted.current
        name, self._predicted = request.request_id, None
        if self._changes != self._changes_seen or self._fresh:
            self._changes_seen = self._changes
            noted.touched[name] = None
        if allocated is None:
            return
        if self._fresh and name in noted.requests:
            watched = noted.requests[name]
            watched.hit = kwargs.get("num_new_computed_tokens", 0) + request.num_computed_tokens
            watched.external = kwargs.get("num_external_computed_tokens", 0)
            watched.written = watched.hit
            noted.admitted.append(watched)
        if predicted is not None:
            taken = predicted[1] - self.free.num_free_blocks
            if taken or predicted[0]:  # most running requests need no block in a step
                noted.allocations.append(Allocation(self.cfg.name, name, predicted[0], taken))

    def _will_cache(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.noted.current = args[0] if args else kwargs["request"]

    def _has_cached(self, *_: Any) -> None:
        """Where steps overlap, each step asks this for each request, and most have nothing new."""
        noted, request = self.noted, self.noted.current
        name = request.request_id
        watched = noted.requests.get(name)
        if watched is not None and (
            request.num_computed_tokens < watched.computed
            or watched.counters != [e.num_cached_block.get(name, 0) for e in noted.managers]
        ):
            noted.touched[name] = None

    def _loaded(self, request: Any, *_: Any, **__: Any) -> Noting:
        """A load beside the steps is over. Its blocks are cached or freed now."""
        name = request.request_id
        self.noted.current, self.noted.touched[name] = request, None
        if name in self.noted.requests and name not in self.scheduler.failed_recving_kv_req_ids:
            watched = self.noted.requests[name]
            self.noted.refresh(name)
            self.worker.load(
                watched, min(request.num_computed_tokens, watched.hit + watched.external)
            )
        yield None

    def _invalid(self, invalid: Iterable[int], *_: Any, **__: Any) -> Noting:
        """A load has not filled these blocks."""
        for number in invalid:
            self.contents.undo(number, 0)
        yield None

    def _takes(self, *_: Any, **__: Any) -> Noting:
        blocks = yield None
        self._changed(blocks)
        for block in blocks:
            self.contents.forget(block.block_id)

    def _gives_back(self, ordered_blocks: Iterable[Any], *others: Any, **__: Any) -> Noting:
        blocks = list(ordered_blocks)
        self._changed(blocks)
        for block in blocks:
            self.noted.touched.update(dict.fromkeys(self.slices.holders.of(block.block_id)))
        yield (blocks, *others)

    def _touches(self, blocks: Any, *_: Any, **__: Any) -> Noting:
        rows = blocks if blocks and isinstance(blocks[0], list | tuple) else (blocks,)
        self._changed(chain(*rows))
        yield None

    def _changed(self, blocks: Iterable[Any]) -> None:
        """Note blocks whose reference counts change."""
        self._changes += 1
        self.noted.blocks.update(block.block_id for block in blocks)

    def _has_inserted(self, _: Any, args: tuple[Any, ...], __: Any) -> None:
        key, block = args
        number, noted = block.block_id, self.noted
        self.slices.mapped.put(number, key)
        noted.blocks.add(number)
        noted.inserted.append((key, number, noted.current))
        if noted.current is not None:
            noted.touched[noted.current.request_id] = None

    def _has_popped(self, removed: Any, args: tuple[Any, ...], _: Any) -> None:
        key, number = args
        if removed is not None:
            self.slices.mapped.remove((number,), key)
            self.noted.blocks.add(number)


def holds_blocks(connector: Any) -> bool:
    """Whether a connector gets the block pool, to hold blocks of it by itself."""
    mine = getattr(type(connector), "bind_gpu_block_pool", None)
    bases = type(connector).__mro__[1:]
    base = next((b for b in bases if b.__name__ == "KVConnectorBase_V1"), None)
    return mine is not getattr(base, "bind_gpu_block_pool", None)
