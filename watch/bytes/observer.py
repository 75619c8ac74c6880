"""An observer that also watches the bytes of blocks.

The scheduler puts a block into the prefix cache before the worker has filled it. Its bytes are read
when the step is over, or before the next one is scheduled: by then the device was given all of it,
and what it is given next comes behind the reading. A worker in another process has its own order,
so its bytes are not judged.
"""

import contextlib
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from vllm.v1.core.kv_cache_utils import get_block_hash

from kvproof.invariants.of_bytes import CACHED, LOADED, NULL, SEVERITIES, TRANSFERRED
from kvproof.live import adapt
from kvproof.live.observer.calls import Noting
from kvproof.live.observer.hooks import MISTAKES
from kvproof.model.because import About, reason
from kvproof.model.finding import Finding
from kvproof.watch.bytes.entries import (
    Moved,
    ReadBlock,
    WatchedBlock,
    WatchedBlocks,
    WatchedLoad,
)
from kvproof.watch.bytes.sums import Layers
from kvproof.watch.judge import Judge
from kvproof.watch.observer import Observer
from kvproof.watch.shape import Unknown
from kvproof.watch.slices import WatchedRequest

WRITES_TO_NULL = ("HPC_ATTN",)
"""Attention backends that send padded tokens to the null block."""

OUGHT = {
    CACHED: (
        "is_cached",
        "block {block} of {engine} is in the prefix cache ({tokens} tokens, group {group}) and "
        "must keep its bytes",
    ),
    LOADED: (
        "was_computed",
        "block {block} of {engine} holds {tokens} tokens (group {group}) that this engine has "
        "computed before, and must get the bytes that it had then",
    ),
    TRANSFERRED: (
        "is_held",
        "block {block} of {engine} (group {group}) is held until it is sent and must keep its "
        "bytes",
    ),
    NULL: ("is_null", "nothing may write to the null block of {engine} (group {group})"),
}


class ByteObserver(Observer):
    """Observe a scheduler and the memory of its worker. `judge.no_bytes` says why there are no
    bytes to judge."""

    def __init__(
        self, scheduler: Any, judge: Judge, name: str = "E", *, tested: bool = False
    ) -> None:
        self._last: Any = None
        super().__init__(scheduler, judge, name, tested=tested)
        judge.times_judged.update(dict.fromkeys(SEVERITIES, 0))
        with self._guard():
            layers = Layers(scheduler)
            self.layers = layers
            writers = ", ".join(self._writers_to_null())
            if writers:
                judge.skipped[NULL] = f"{writers} may write to it"
            null = not writers
            found = self._judged, self._differs, self._loaded
            self.calls.entries = WatchedBlocks(layers, *found, null=null)

    @property
    def entries(self) -> WatchedBlocks | None:
        """The watched blocks; None where bytes are not judged."""
        entries: WatchedBlocks | None = self.calls.entries
        return entries

    def _writers_to_null(self) -> Iterator[str]:
        """Name the parts of vLLM that write to the null block on purpose."""
        if not all(group.attention for group in self.cfg.groups):
            yield "a Mamba layer"
        yield from sorted(self.layers.backends().intersection(WRITES_TO_NULL))
        if getattr(self.scheduler.vllm_config.parallel_config, "enable_elastic_ep", False):
            yield "the warm-up of elastic EP"

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """Stop judging bytes after any mistake with them. The engine is still watched."""
        try:
            yield
        except self.judge.passed_on:
            raise
        except Unknown as unknown:
            self.calls.entries = None
            self.judge.no_bytes = str(unknown)
        except MISTAKES as error:
            self.calls.entries = None
            self.judge.mistake(error, "it judges the bytes of blocks no more")

    # What the scheduler does.

    def _schedules(self, *args: Any, **kwargs: Any) -> Noting:
        self._settle()
        running = super()._schedules(*args, **kwargs)
        next(running)
        output = yield None
        with contextlib.suppress(StopIteration):
            running.send(output)
        self._last = output
        if self.entries is None:
            return
        with self._guard():
            self.entries.scheduled(self._hits())
            for block in self._written_again(self.entries, output.num_scheduled_tokens):
                self.entries.written(block)
            scheduled = output.num_scheduled_tokens
            for watched in self.notes.admitted:
                self._load(self.entries, watched, scheduled, output)
            for name, failed in self.entries.loads:
                watched = self.notes.requests[name]
                if not failed:
                    self._move(watched, watched.hit, watched.hit + watched.external, sent=False)
                    self._load(self.entries, watched, scheduled, None)
            self.entries.loads.clear()

    def _completes(self, *args: Any, **kwargs: Any) -> Noting:
        output = args[0] if args else kwargs["scheduler_output"]
        if self.entries is not None:
            with self._guard():
                answer = args[1] if len(args) > 1 else kwargs["model_runner_output"]
                reports = getattr(answer, "kv_connector_output", None)
                self.entries.step_ends(output, getattr(reports, "invalid_block_ids", None) or ())
        if output is self._last:  # else another step is on its way
            self._settle()
        yield from super()._completes(*args, **kwargs)

    def _settle(self) -> None:
        if self.entries is not None:
            with self._guard():
                self.entries.settle()

    def _ended(self, what: str, error: Exception | None) -> None:
        touched = {*self.notes.touched, *self.scheduler.finished_req_ids}
        try:
            super()._ended(what, error)
        finally:
            if self.entries is not None and error is None:
                with self._guard():
                    self._transfers(touched)
                    self.entries.compare(wait=not self.scheduler.requests)

    def _watch_map(self) -> None:
        super()._watch_map()
        if self.entries is not None:
            self.entries.reset()

    # What that means for blocks.

    def _hits(self) -> Iterator[tuple[int, str]]:
        """Return the blocks that the requests that were just admitted hit, each with its
        request."""
        for watched in self.notes.admitted:
            for group, table in zip(self.cfg.groups, watched.tables, strict=True):
                for block in table[: -(-watched.hit // group.block_size)]:
                    if not block.is_null:
                        yield block.block_id, watched.live.request_id

    def _written_again(self, entries: WatchedBlocks, scheduled: dict[str, int]) -> Iterator[int]:
        """Return the cached blocks of attention groups into which a step writes their own tokens
        again."""
        for name, count in scheduled.items():
            watched = self.notes.requests.get(name)
            if watched is None:
                continue
            end = watched.live.num_computed_tokens
            for index, table in enumerate(watched.tables):
                size = self.cfg.groups[index].block_size
                for column in range((end - count) // size, min(-(-end // size), len(table))):
                    block = table[column].block_id
                    if block in entries.cached and self._has_its_tokens(watched, index, column):
                        yield block

    def _has_its_tokens(self, watched: WatchedRequest, index: int, column: int) -> bool:
        """Whether the key of a cached block in a table is that of the request's own tokens."""
        group = self.cfg.groups[index]
        keys = self.slices.mapped.of(watched.tables[index][column].block_id)
        unit = self.cfg.hash_block_size
        hashes = adapt.hashes_for(watched.live.block_hashes, unit, group.block_size)
        own = hashes[column] if group.attention and column < len(hashes) else None
        return any(get_block_hash(key) == own for key in keys)

    def _transfers(self, touched: Iterable[str]) -> None:
        """Read the blocks of finished requests: a connector holds them until it has sent them."""
        assert self.entries is not None
        for name in touched:
            watched = self.notes.requests.get(name)
            if watched is None:
                if name in self.entries.held:
                    self.entries.free(name)
            elif watched.live.is_finished() and name not in self.entries.held:
                moved = self._move(watched, 0, watched.live.num_computed_tokens, sent=True)
                self.entries.held[name] = [entry for each in moved for entry in each.entries]

    def _move(self, watched: WatchedRequest, first: int, tokens: int, *, sent: bool) -> list[Moved]:
        """Read the blocks that hold the tokens of a request from `first` to `tokens`."""
        assert self.entries is not None
        found = []
        for group, each in enumerate(self.cfg.groups):
            moved = Moved(watched, group, each.block_size, first, tokens, sent=sent)
            form = self.layers.form(group)
            then = partial(self._moved, moved, form)
            self.entries.read([ReadBlock(entry) for entry in moved.entries], then)
            found.append(moved)
        return found

    def _moved(self, moved: Moved, form: str) -> None:
        self.notes.history.sums(moved.sums(form))

    def _load(
        self, entries: WatchedBlocks, watched: WatchedRequest, scheduled: dict[str, int], step: Any
    ) -> None:
        """Note the blocks that a connector loads for a request in a step, or has loaded beside the
        steps. They are compared with those that this engine has computed, but not what another
        engine sends. The step computes what is behind `start`."""
        live = watched.live
        if not watched.external or self._loads_from_others(live):
            return
        start = live.num_computed_tokens - scheduled.get(live.request_id, 0)
        end = min(watched.hit + watched.external, start)
        whole, blocks = end == watched.hit + watched.external, {}
        for group, table in zip(self.cfg.groups, watched.tables, strict=True):
            size = group.block_size
            whole = whole and group.attention and watched.hit % size == 0 == end % size
            for column in range(-(-watched.hit // size), end // size if group.attention else 0):
                if not table[column].is_null:
                    blocks[table[column].block_id] = (column + 1) * size
        entries.loads_blocks(WatchedLoad(live.request_id, blocks, step, whole=whole))

    def _loads_from_others(self, live: Any) -> bool:
        config = self.scheduler.vllm_config.kv_transfer_config
        params = live.kv_transfer_params or {}
        return config.kv_role == "kv_consumer" or any(each.startswith("remote") for each in params)

    # What comes of it.

    def _judged(self, check: str) -> None:
        self.judge.times_judged[check] += 1

    def _loaded(self, load: WatchedLoad) -> None:
        """Report the wrong blocks of a load of which all is known. A load whose blocks were all
        compared counts no more as trusted."""
        if load.whole:
            self.notes.trust(-1)
        for entry in load.wrong:
            tokens = load.blocks[entry.block]
            wrong = WatchedBlock(entry.block, entry.group, LOADED, tokens)
            self._differs(wrong, f"{load.request} has loaded it")

    def _differs(self, entry: WatchedBlock, when: str) -> None:
        about = About(self.cfg.name, group=entry.group, block=entry.block)
        ought = reason(*OUGHT[entry.check], tokens=entry.tokens)
        differs = reason("other_bytes", "its bytes are not the same when {when}", when=when)
        self.judge.report(Finding(entry.check, (ought, differs), about), self.notes.history)
