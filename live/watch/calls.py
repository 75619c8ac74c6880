"""The calls inside the events of a watched engine: each notes what it does, and judges nothing."""

from collections.abc import Generator, Iterable
from itertools import chain
from typing import Any

from vllm.v1.request import RequestStatus

from kvproof.live.watch.happening import Looked
from kvproof.live.watch.hooks import Arguments
from kvproof.live.watch.noted import Noted
from kvproof.live.watch.slices import Watched
from kvproof.live.watch.worker import Worker
from kvproof.model.config import Engine
from kvproof.model.events import Admit, Compute, FinishLoad, Preempt
from kvproof.model.step import Allocation

Noting = Generator[Arguments | None, Any, None]


class Calls:
    """Hooks around the methods that events of one engine call. `map` is the hash map."""

    def __init__(self, noted: Noted, worker: Worker) -> None:
        self.noted = noted
        self.worker = worker
        self.cfg = noted.cfg
        self.scheduler = noted.scheduler
        self.slices = noted.slices
        self.contents = noted.contents
        self.map: Any = None
        self._predictions: list[tuple[int, int]] = []
        self._taken: list[int] = []
        self._changes = 0

    def concerns(self, request: Any, *_: Any, **__: Any) -> Noting:
        self.noted.current = request
        self.noted.touched[request.request_id] = None
        yield None

    def preempts(self, request: Any, *_: Any, **__: Any) -> Noting:
        event = self.noted.event
        event.choices.append(Preempt(request.request_id, event.needy))
        yield from self.concerns(request)

    def predicts(self, *_: Any, apply_admission_cap: bool = False, **__: Any) -> Noting:
        blocks = yield None
        if not apply_admission_cap:
            self._predictions.append((blocks, self.slices.pool.get_num_free_blocks()))

    def allocates(
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

    def loaded(self, request: Any, *_: Any, **__: Any) -> Noting:
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

    def ends(self, request: Any, *_: Any, **__: Any) -> Noting:
        """A request ends, and its blocks may be kept for a transfer."""
        name, computed = request.request_id, request.num_computed_tokens
        self.noted.touched[name] = None
        _, params = yield None
        if params:
            self.noted.event.offers.append((name, computed, params))

    def reports(self, *_: Any, **__: Any) -> Noting:
        """Somebody takes the KV events."""
        found = yield None
        event = self.noted.event
        event.reports = [*(event.reports or ()), *(found or ())]

    def invalid(self, invalid: Iterable[int], scheduled: Any = (), *_: Any, **__: Any) -> Noting:
        """A load has not filled these blocks."""
        blocks = set(invalid)
        for number in blocks:
            self.contents.undo(number, 0)
        for name in scheduled:
            watched = self.noted.requests.get(name)
            if watched is not None and blocks & filled(watched, self.cfg):
                length = watched.live.num_output_tokens
                self.noted.event.spoiled.append((watched, length))
        yield None

    def takes(self, *_: Any, **__: Any) -> Noting:
        blocks = yield None
        self._changed(blocks)
        for block in blocks:
            self.contents.take(block.block_id)
            self._taken.append(block.block_id)

    def gives_back(self, ordered_blocks: Iterable[Any], *others: Any, **named: Any) -> Noting:
        blocks = list(ordered_blocks)
        self._changed(blocks)
        for block in blocks:
            self.noted.touched.update(dict.fromkeys(self.slices.holders.of(block.block_id)))
        yield (blocks, *others), named

    def touches(self, blocks: Any, *_: Any, **__: Any) -> Noting:
        rows = blocks if blocks and isinstance(blocks[0], list | tuple) else (blocks,)
        self._changed(chain(*rows))
        yield None

    def _changed(self, blocks: Iterable[Any]) -> None:
        """Note blocks whose reference counts change."""
        self._changes += 1
        self.noted.blocks.update(block.block_id for block in blocks)

    def maps(self, key: Any, block: Any, *_: Any, **__: Any) -> Noting:
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

    def unmaps(self, key: Any, block_id: int, *_: Any, **__: Any) -> Noting:
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


def filled(watched: Watched, cfg: Engine) -> set[int]:
    """The blocks of a request that its connector fills."""
    begin, end = watched.hit, watched.hit + watched.external
    return {
        block.block_id
        for group, table in zip(cfg.groups, watched.tables, strict=True)
        for block in table[begin // group.block_size : -(-end // group.block_size)]
    }
