"""An observer of one scheduler: it notes what each event touches, and lets that be judged.

Nothing of vLLM is changed: its methods are called as they are, and their results are returned.
"""

from collections.abc import Generator, Iterable
from itertools import chain
from typing import Any

from kvproof.live import adapt
from kvproof.live.watch.between import Between
from kvproof.live.watch.hooks import Arguments, Hook, Hooks
from kvproof.live.watch.judge import Judge
from kvproof.live.watch.noted import Noted
from kvproof.live.watch.shape import Unknown, shape
from kvproof.live.watch.tokens import tokens_of
from kvproof.live.watch.worker import Worker
from kvproof.model.step import Allocation

Noting = Generator[Arguments | None, Any, None]

STEPS = ("schedule", "update_from_output")
"""The methods in which an exception ends the engine."""

NOT_EVERYWHERE = ("pop_blocks_for_free", "_update_request_as_session", "_handle_invalid_blocks")
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
        self._changes = 0
        self.map: Any = None
        if holds_blocks(scheduler.connector):
            why = "the connector holds references to blocks, too"
            judge.skipped["references_are_exact"] = why
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
            self.judge.look(self.noted, what)
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
        yield None
        if session.request_id in self.noted.requests:
            self.noted.requests[session.request_id].tokens = tokens_of(session)

    def _schedules(self, *_: Any, **__: Any) -> Noting:
        output = yield None
        self.noted.history.note = output.num_scheduled_tokens
        noted = self.noted
        noted.refresh_all()
        noted.reads += self.worker.execute(output, noted.admitted, noted.touched_requests())

    def _completes(self, *_: Any, **__: Any) -> Noting:
        yield None
        for watched in self.noted.touched_requests():
            watched.know()
            if any(watched.tables):
                self.worker.write_up(watched)

    # Calls inside events.

    def _concerns(self, request: Any, *_: Any, **__: Any) -> Noting:
        self.noted.current = request
        self.noted.touched[request.request_id] = None
        yield None

    def _predicts(self, *_: Any, apply_admission_cap: bool = False, **__: Any) -> Noting:
        blocks = yield None
        if not apply_admission_cap:
            self._predictions.append((blocks, self.slices.pool.get_num_free_blocks()))

    def _allocates(
        self,
        request: Any,
        *_: Any,
        num_new_computed_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        **__: Any,
    ) -> Noting:
        name = request.request_id
        fresh = not any(each.req_to_blocks.get(name) for each in self.noted.managers)
        self.noted.current, before = request, self._changes
        self._predictions.clear()
        allocated = yield None
        if self._changes != before or fresh:
            self.noted.touched[name] = None
        if allocated is None:
            return
        if fresh and name in self.noted.requests:
            watched = self.noted.requests[name]
            watched.hit = num_new_computed_tokens + request.num_computed_tokens
            watched.external = num_external_computed_tokens
            watched.written = watched.hit
            self.noted.admitted.append(watched)
        if self._predictions:
            predicted, free = self._predictions[-1]
            taken = free - self.slices.pool.get_num_free_blocks()
            self.noted.allocations.append(Allocation(self.cfg.name, name, predicted, taken))

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
        if key not in self.slices.mapped.of(number):
            self.slices.mapped.add(number, key)
        self.noted.blocks.add(number)
        self.noted.mapped_now.add(number)
        self.noted.name(key)
        yield None

    def _unmaps(self, key: Any, block_id: int, *_: Any, **__: Any) -> Noting:
        removed = yield None
        if removed is not None:
            self.slices.mapped.remove(block_id, key)
            if not self.slices.mapped.of(block_id):
                self.slices.named.pop(key, None)
                self.slices.ends.pop(key, None)
            self.noted.blocks.add(block_id)


def holds_blocks(connector: Any) -> bool:
    """Whether a connector gets the block pool, to hold blocks of it by itself."""
    mine = getattr(type(connector), "bind_gpu_block_pool", None)
    bases = type(connector).__mro__[1:]
    base = next((b for b in bases if b.__name__ == "KVConnectorBase_V1"), None)
    return mine is not getattr(base, "bind_gpu_block_pool", None)
