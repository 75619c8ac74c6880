"""An observer of one scheduler: it notes what each event touches, and lets that be judged.

Nothing of vLLM is changed: its methods are called as they are, and their results are returned.
"""

from collections.abc import Generator, Iterable
from itertools import chain
from typing import Any

from vllm.v1.request import RequestStatus

from kvproof.live import adapt
from kvproof.live.watch.between import Between
from kvproof.live.watch.groups import Unknown
from kvproof.live.watch.happening import Happening, Looked
from kvproof.live.watch.hooks import Arguments, Hook, Hooks
from kvproof.live.watch.judge import Judge
from kvproof.live.watch.noted import Noted
from kvproof.live.watch.shape import shape
from kvproof.live.watch.slices import Watched
from kvproof.live.watch.tokens import tokens_of
from kvproof.live.watch.worker import Worker
from kvproof.model.config import Engine
from kvproof.model.events import Admit, Compute, FinishLoad, Preempt
from kvproof.model.step import Allocation

Noting = Generator[Arguments | None, Any, None]

STEPS = ("schedule", "update_from_output")
"""The methods in which an exception ends the engine."""

NOT_EVERYWHERE = (
    "pop_blocks_for_free",
    "_update_request_as_session",
    "_handle_invalid_blocks",
    "_connector_finished",
)
"""Methods that older releases do not have, nor what they do."""


class Observer:
    """Watches one scheduler from now on. Raises Unknown where its kind of engine is not known.

    In a test suite (`tested`) a test may build by hand what no event leads to, and may call for an
    exception. Then its engine is not judged any further."""

    def __init__(
        self, scheduler: Any, judge: Judge, name: str = "E", *, tested: bool = False
    ) -> None:
        self.scheduler = scheduler
        self.judge = judge
        self.noted = Noted(scheduler, shape(scheduler, name))
        self.cfg = self.noted.cfg
        self.slices = self.noted.slices
        self.contents = self.noted.contents
        self.worker = Worker(self.slices, self.contents)
        self.between = Between(scheduler) if tested else None
        self.hooks = Hooks(self._ended, judge.failed, judge.stopped, judge.passed_on, self._begins)
        self._predictions: list[tuple[int, int]] = []
        self._taken: list[int] = []
        self._changes = 0
        self.map: Any = None
        judge.watch(self.noted)
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
            (scheduler, "_preempt_request", self._preempts),
            (scheduler, "_update_request_as_session", self._goes_on),
            (scheduler, "_update_waiting_for_remote_kv", self._loaded),
            (scheduler, "_handle_invalid_blocks", self._invalid),
            (scheduler, "_connector_finished", self._ends),
            (manager, "allocate_slots", self._allocates),
            (manager, "cache_blocks", self._concerns),
            (manager, "free", self._concerns),
            (manager, "pop_blocks_for_free", self._concerns),
            (manager.coordinator, "get_num_blocks_to_allocate", self._predicts),
            (pool, "get_new_blocks", self._takes),
            (pool, "free_blocks", self._gives_back),
            (pool, "touch", self._touches),
        ]
        for owner, name, hook in (*events, *parts):
            if hasattr(owner, name):
                self.hooks.add(owner, name, hook, event=(owner, name, hook) in events)
            elif name not in NOT_EVERYWHERE:
                raise Unknown(f"it has no {type(owner).__name__}.{name}")
        self._watch_map()

    def _watch_map(self) -> None:
        """Watch the hash map. A reset of the cache makes another one, which is empty."""
        self.hooks.forget(self.map)
        self.map = self.slices.pool.cached_block_hash_to_block
        self.hooks.add(self.map, "insert", self._maps)
        self.hooks.add(self.map, "pop", self._unmaps)
        self.noted.event.lost = 0
        self.noted.blocks.update(self.slices.mapped)
        self.slices.mapped.clear()
        self.slices.named.clear()
        self.slices.ends.clear()

    # Events.

    def _begins(self) -> None:
        """An event begins: nothing may have changed since the last one."""
        if self.between is not None and (why := self.between.changed()):
            self.hooks.stop(why)

    def _ended(self, what: str, error: Exception | None) -> None:
        """An event is over: what it has touched is judged."""
        self.noted.event.what = what
        self.noted.history.end(what)
        if self.between is not None:
            self.between.note()
        if error is not None:
            self._raised(what, error)
            return
        if self.slices.pool.cached_block_hash_to_block is not self.map:
            self._watch_map()
        self.noted.refresh_all()
        self.slices.deferred = [
            block.block_id
            for _, blocks in adapt.deferred_frees(self.scheduler)[1]
            for block in blocks
        ]
        try:
            self.judge.look(self.noted)
        finally:
            self.noted.clear()

    def _raised(self, what: str, error: Exception) -> None:
        """An event has raised an exception, which ends an engine if it is a step. One that a test
        does not expect fails the test by itself."""
        if what not in STEPS:
            return
        if self.between is None:
            self.judge.died(self.noted, what, error)
        else:
            self.hooks.stop(f"{what} raised {type(error).__name__}")

    def _anything(self, *args: Any, **named: Any) -> Noting:
        self.noted.history.note = args[0] if args else None
        event = self._begin(args, named)
        result = yield None
        if not self.hooks.depth:
            event.result = result
            for each in result if isinstance(result, list) else ():
                self.noted.touched[getattr(each, "request_id", "")] = None

    def _begin(self, args: tuple[Any, ...] = (), named: dict[str, Any] | None = None) -> Happening:
        """The event that runs now. It begins with the outermost call."""
        event = self.noted.event
        if not event.begun:
            pool = self.slices.pool
            event.begun, event.args, event.named = True, args, named or {}
            event.running = list(self.scheduler.running)
            event.free = pool.get_num_free_blocks()
            event.cached = len(pool.cached_block_hash_to_block)
        return event

    def _arrives(self, request: Any, *_: Any, **__: Any) -> Noting:
        self.noted.history.note = {request.request_id: f"{request.num_prompt_tokens} tokens"}
        if request.num_computed_tokens:
            self.hooks.stop("a request arrived with computed tokens")
        yield None
        if self.scheduler.requests.get(request.request_id) is request:
            self.noted.meet(request)
        self.noted.touched[request.request_id] = None

    def _goes_on(self, session: Any, *_: Any, **__: Any) -> Noting:
        """The next part of a session replaces what was answered last."""
        yield None
        if session.request_id in self.noted.requests:
            watched = self.noted.requests[session.request_id]
            watched.tokens, watched.submitted = tokens_of(session), session.num_prompt_tokens

    def _schedules(self, *args: Any, **named: Any) -> Noting:
        event = self._begin(args, named)
        output = event.result = yield None
        self.noted.history.note = output.num_scheduled_tokens
        noted = self.noted
        noted.flights.dispatched(output)
        noted.refresh_all()
        noted.reads += self.worker.execute(output, noted.admitted, noted.touched_requests())

    def _completes(self, *args: Any, **named: Any) -> Noting:
        event = self._begin(args, named)
        self.noted.flights.arrived(args[0] if args else named["scheduler_output"])
        event.result = yield None
        for watched in self.noted.touched_requests():
            watched.know()
            if any(watched.tables):
                self.worker.write_up(watched)

    # Calls inside events.

    def _concerns(self, request: Any, *_: Any, **__: Any) -> Noting:
        self.noted.current = request
        self.noted.touched[request.request_id] = None
        yield None

    def _preempts(self, request: Any, *_: Any, **__: Any) -> Noting:
        event = self.noted.event
        event.choices.append(Preempt(request.request_id, event.needy))
        yield from self._concerns(request)

    def _predicts(self, *_: Any, apply_admission_cap: bool = False, **__: Any) -> Noting:
        blocks = yield None
        if not apply_admission_cap:
            self._predictions.append((blocks, self.slices.pool.get_num_free_blocks()))

    def _allocates(
        self,
        request: Any,
        num_new_tokens: int = 0,
        *_: Any,
        num_new_computed_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        **__: Any,
    ) -> Noting:
        name = request.request_id
        fresh = not any(each.req_to_blocks.get(name) for each in self.noted.managers)
        self.noted.current, before = request, self._changes
        event, runs = self.noted.event, request.status == RequestStatus.RUNNING
        self._predictions.clear()
        self._taken, since = [], len(event.keys)
        allocated = yield None
        if self._changes != before or fresh:
            self.noted.touched[name] = None
        if allocated is None:
            event.needy = name
            return
        if event.needy == name:
            event.needy = ""
        if fresh:
            event.choices.append(Admit(name, num_new_computed_tokens, num_external_computed_tokens))
        if num_new_tokens and (self._taken or not runs):
            event.choices.append(Compute(name, num_new_tokens))
        if self._taken:
            event.taken.setdefault(name, []).extend(self._taken)
        if fresh and name in self.noted.requests:
            watched = self.noted.requests[name]
            watched.hit = num_new_computed_tokens + request.num_computed_tokens
            watched.external = num_external_computed_tokens
            watched.written = watched.hit
            self.noted.admitted.append(watched)
            event.looked.append(Looked(watched, watched.hit, watched.external, since))
        if self._predictions:
            predicted, free = self._predictions[-1]
            taken = free - self.slices.pool.get_num_free_blocks()
            self.noted.allocations.append(Allocation(self.cfg.name, name, predicted, taken))

    def _loaded(self, request: Any, *_: Any, **__: Any) -> Noting:
        """A load beside the steps is over. Its blocks are cached or freed now."""
        name = request.request_id
        self.noted.current, self.noted.touched[name] = request, None
        self.noted.event.choices.append(FinishLoad(name))
        if name in self.noted.requests and name not in self.scheduler.failed_recving_kv_req_ids:
            watched = self.noted.requests[name]
            self.noted.refresh(name)
            self.worker.load(
                watched, min(request.num_computed_tokens, watched.hit + watched.external)
            )
        yield None

    def _ends(self, request: Any, *_: Any, **__: Any) -> Noting:
        """A request ends, and its blocks may be kept for a transfer."""
        name, computed = request.request_id, request.num_computed_tokens
        self.noted.touched[name] = None
        _, params = yield None
        if params:
            self.noted.event.offers.append((name, computed, params))

    def _invalid(self, invalid: Iterable[int], scheduled: Any = (), *_: Any, **__: Any) -> Noting:
        """A load has not filled these blocks."""
        blocks = set(invalid)
        for number in blocks:
            self.contents.undo(number, 0)
        for name in scheduled:
            watched = self.noted.requests.get(name)
            if watched is not None and blocks & loaded(watched, self.cfg):
                length = watched.live.num_output_tokens
                self.noted.event.spoiled.append((watched, length))
        yield None

    def _takes(self, *_: Any, **__: Any) -> Noting:
        blocks = yield None
        self._changed(blocks)
        for block in blocks:
            self.contents.forget(block.block_id)
            self._taken.append(block.block_id)

    def _gives_back(self, ordered_blocks: Iterable[Any], *others: Any, **named: Any) -> Noting:
        blocks = list(ordered_blocks)
        self._changed(blocks)
        for block in blocks:
            self.noted.touched.update(dict.fromkeys(self.slices.holders.of(block.block_id)))
        yield (blocks, *others), named

    def _touches(self, blocks: Any, *_: Any, **__: Any) -> Noting:
        rows = blocks if blocks and isinstance(blocks[0], list | tuple) else (blocks,)
        self._changed(chain(*rows))
        yield None

    def _changed(self, blocks: Iterable[Any]) -> None:
        """Note blocks whose reference counts change."""
        self._changes += 1
        self.noted.blocks.update(block.block_id for block in blocks)

    def _maps(self, key: Any, block: Any, *_: Any, **__: Any) -> Noting:
        number = block.block_id
        self._keep_key(key)
        if key not in self.slices.mapped.of(number):
            self.slices.mapped.add(number, key)
        self.noted.blocks.add(number)
        self.noted.mapped_now.add(number)
        self.noted.name(key)
        yield None

    def _keep_key(self, key: Any) -> None:
        """Note which block a key has that is to change."""
        block = self.map.get_one_block(key)
        self.noted.event.keys.append((key, None if block is None else block.block_id))

    def _unmaps(self, key: Any, block_id: int, *_: Any, **__: Any) -> Noting:
        self._keep_key(key)
        removed = yield None
        if removed is not None:
            event = self.noted.event
            event.lost = len(event.keys) - 1 if event.lost is None else event.lost
            self.slices.mapped.remove(block_id, key)
            if not self.slices.mapped.of(block_id):
                self.slices.named.pop(key, None)
                self.slices.ends.pop(key, None)
            self.noted.blocks.add(block_id)


def loaded(watched: Watched, cfg: Engine) -> set[int]:
    """The blocks of a request that its connector fills."""
    begin, end = watched.hit, watched.hit + watched.external
    return {
        block.block_id
        for group, table in zip(cfg.groups, watched.tables, strict=True)
        for block in table[begin // group.block_size : -(-end // group.block_size)]
    }
