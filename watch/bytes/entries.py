"""This module keeps the blocks whose bytes are watched, and the comparisons that wait for the
device. A connector that loads tokens which this engine has computed must bring their bytes back."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kvproof.invariants.of_bytes import CACHED, LOADED, NULL, TRANSFERRED
from kvproof.model.records.lines import BlockSums
from kvproof.watch.bytes.sums import Layers, Sums
from kvproof.watch.slices import WatchedRequest

PER_BLOCK, LEAST = 4, 10_000
"""The number of keys that are kept for each block of the pool, and at least in all."""


class Computed:
    """Keep the sums of the blocks of each key. A key may have several: an engine that computes the
    same tokens again may get other bits. What is kept is never dropped for something new, because a
    store may still have it: of the keys that have no place nothing is known."""

    def __init__(self, blocks: int) -> None:
        self._keys_max = max(PER_BLOCK * blocks, LEAST)
        self._of: dict[Any, tuple[int, ...]] = {}
        self._unread: set[Any] = set()

    def learn(self, key: Any, found: int) -> None:
        """Keep the sum of a block of this key, which was computed."""
        known = self._of.get(key, ())
        if found not in known and (known or len(self._of) < self._keys_max):
            self._of[key] = (*known, found)

    def miss(self, key: Any) -> None:
        """Note that a block of this key was computed and that its bytes are not known."""
        self._unread.add(key)

    def of(self, key: Any) -> tuple[int, ...]:
        """Return all sums that the blocks of a key had: none if one of them is not known."""
        return () if key in self._unread else self._of.get(key, ())


class WatchedLoad:
    """A load of one request. Its full `blocks` can be compared; the value of each is the number of
    tokens that end with it. `left` are those that were not read yet, and `wrong` those whose bytes
    are others. `whole` means that all that it loads is compared. In its `step` it may still turn
    out to have failed."""

    def __init__(self, request: str, blocks: dict[int, int], step: Any, *, whole: bool) -> None:
        self.request = request
        self.blocks = blocks
        self.step = step
        self.whole = whole
        self.left = 0
        self.wrong: list[Any] = []

    @property
    def ended(self) -> bool:
        """Whether the result of the load is known for every block."""
        return self.step is None and not self.left


class WatchedBlock:
    """A block as it is watched: `check` is what is judged of it. `filled` means that the step that
    writes its bytes was given to the device; `sum` is theirs, None where it is not known yet. A
    cached block ends a prefix of `tokens` tokens, and has a `key`. This engine has computed it, or
    it is part of a `load`; of a load that has `failed` nothing is known."""

    __slots__ = ("block", "check", "failed", "filled", "group", "key", "load", "sum", "tokens")

    def __init__(
        self,
        block: int,
        group: int,
        check: str,
        tokens: int = 0,
        *,
        key: Any = None,
        filled: bool = False,
    ) -> None:
        self.block = block
        self.group = group
        self.check = check
        self.tokens = tokens
        self.key = key
        self.filled = filled
        self.failed = False
        self.load: WatchedLoad | None = None
        self.sum: int | None = None


class Moved:
    """The blocks of a request in one group that hold its tokens from `first` to `tokens`."""

    def __init__(
        self, watched: WatchedRequest, group: int, size: int, first: int, tokens: int, *, sent: bool
    ) -> None:
        self.request = watched.live.request_id
        self.group = group
        self.at = first // size
        self.tokens = tokens
        self.sent = sent
        self._columns = [
            None if block.is_null else WatchedBlock(block.block_id, group, TRANSFERRED, filled=True)
            for block in watched.tables[group][self.at : -(-tokens // size)]
        ]

    @property
    def entries(self) -> list[WatchedBlock]:
        """The blocks of the request, without the null block."""
        return [entry for entry in self._columns if entry is not None]

    def sums(self, form: str) -> BlockSums:
        """Return the sums of the blocks as a line of a record. All must be known."""
        words = (f"{entry.sum or 0:016x}" if entry else "" for entry in self._columns)
        return BlockSums(
            request=self.request,
            sent=self.sent,
            group=self.group,
            at=self.at,
            tokens=self.tokens,
            form=form,
            sums=tuple(words),
        )


class ReadBlock(NamedTuple):
    """One block to read. `when` says what happens to it now, if its sum must be the same still."""

    entry: WatchedBlock
    when: str = ""


class Reading(NamedTuple):
    """Rows that were read together. `then` is called when their sums are known."""

    rows: list[ReadBlock]
    sums: Sums
    then: Callable[[], None]


class WatchedBlocks:
    """The watched blocks of one engine. `judged` is called for each comparison, `changed` with each
    entry whose bytes are others than they were, and `loaded` with each load of which all is
    known."""

    def __init__(
        self,
        layers: Layers,
        judged: Callable[[str], None],
        changed: Callable[[WatchedBlock, str], None],
        loaded: Callable[[WatchedLoad], None],
        *,
        null: bool,
    ) -> None:
        self.layers = layers
        self.judged = judged
        self.changed = changed
        self.loaded = loaded
        self.computed = Computed(layers.num_blocks)
        self.cached: dict[int, WatchedBlock] = {}
        self.filling: list[WatchedBlock] = []
        self.left: list[WatchedBlock] = []
        self.held: dict[str, list[WatchedBlock]] = {}
        self.loads: list[tuple[str, bool]] = []
        self.awaited: list[WatchedLoad] = []
        groups = range(len(layers.names)) if null else ()
        self.null = {group: WatchedBlock(0, group, NULL, filled=True) for group in groups}
        self._waiting: deque[Reading] = deque()

    # The prefix cache.

    def enters(self, block: int, group: int, tokens: int, key: Any) -> None:
        """Note that a block enters the prefix cache. The next step may be the one that fills it."""
        if block not in self.cached:
            self.cached[block] = WatchedBlock(block, group, CACHED, tokens, key=key)
            self.filling.append(self.cached[block])

    def written(self, block: int) -> None:
        """Note that the next step computes the tokens of a cached block again."""
        entry = self.cached.get(block)
        if entry is not None and entry.filled:
            entry.filled = entry.failed = False
            self.filling.append(entry)

    def leaves(self, block: int) -> None:
        """Note that a block leaves the prefix cache."""
        entry = self.cached.pop(block, None)
        if entry is not None:
            self.left.append(entry)

    def reset(self) -> None:
        """Forget all cached blocks, because the prefix cache was emptied."""
        self._miss(self.filling)
        self.cached.clear()
        self.filling.clear()
        self.left.clear()

    def settle(self) -> None:
        """Read what the steps so far have filled: all of them were given to the device."""
        entries = [each for each in self.filling if self.cached.get(each.block) is each]
        self._miss(each for each in self.filling if self.cached.get(each.block) is not each)
        self.filling.clear()
        self.left.clear()
        for entry in entries:
            entry.filled = True
        self.read([ReadBlock(entry) for entry in entries])

    def _miss(self, entries: Iterable[WatchedBlock]) -> None:
        """Note that these blocks left the cache before they were read."""
        for entry in entries:
            self.computed.miss(entry.key)

    def scheduled(self, hits: Iterable[tuple[int, str]]) -> None:
        """Read what a step hits and evicts. The step was scheduled, and not given to the device
        yet. `hits` are blocks with the requests that hit them."""
        rows = [ReadBlock(entry, "it is evicted") for entry in self.left if entry.filled]
        for block, name in hits:
            entry = self.cached.get(block)
            if entry is not None and entry.filled:
                rows.append(ReadBlock(entry, f"{name} hits it"))
        self.left.clear()
        self.read(rows)

    # Loads.

    def loads_blocks(self, load: WatchedLoad) -> None:
        """Note the blocks that a connector has filled, or fills in the step that begins now."""
        for block in list(load.blocks):
            entry = self.cached.get(block)
            if entry is None or entry.filled:
                load.whole = False
            else:
                entry.load = load
                load.left += 1
        if load.left and load.step is not None:
            self.awaited.append(load)

    def step_ends(self, step: Any, failed: Iterable[int]) -> None:
        """Take the output of a step, with the blocks whose loads have failed."""
        failed = set(failed)
        for block in failed:
            if block in self.cached:
                self.cached[block].failed = True
        ended = [each for each in self.awaited if each.step is step]
        self.awaited = [each for each in self.awaited if each.step is not step]
        for load in ended:
            load.step = None
            load.whole = load.whole and failed.isdisjoint(load.blocks)
            load.wrong = [each for each in load.wrong if each.block not in failed]
            self._ended(load)

    def _filled(self, entry: WatchedBlock, found: int) -> None:
        """Take the sum of a block in the prefix cache that was read for the first time."""
        load, entry.load = entry.load, None
        if load is None:
            if not entry.failed:
                self.computed.learn(entry.key, found)
            return
        load.left -= 1
        known = () if entry.failed else self.computed.of(entry.key)
        if not known:
            load.whole = False
        else:
            self.judged(LOADED)
            if found not in known:
                load.wrong.append(entry)

    def _ended(self, load: WatchedLoad) -> None:
        if load.ended:
            self.loaded(load)

    # Transfers.

    def free(self, name: str) -> None:
        """Read the blocks that a finished request held, because they are freed."""
        self.read([ReadBlock(entry, f"{name} frees it") for entry in self.held.pop(name)])

    # Reading.

    def read(self, rows: list[ReadBlock], then: Callable[[], None] = lambda: None) -> None:
        """Read blocks. The device reads them after all that it was given before."""
        by_group: dict[int, list[ReadBlock]] = {}
        for row in rows:
            by_group.setdefault(row.entry.group, []).append(row)
        for group, some in by_group.items():
            if group in self.null:
                some.append(ReadBlock(self.null[group], "it is read again"))
            blocks = [row.entry.block for row in some]
            self._waiting.append(Reading(some, Sums(self.layers.of(group), blocks), then))

    def compare(self, *, wait: bool) -> None:
        """Compare what was read in the meantime, or wait for all of it."""
        while self._waiting and (wait or self._waiting[0].sums.ready()):
            reading = self._waiting.popleft()
            sums = reading.sums.result()
            wrong: list[tuple[WatchedBlock, str]] = []
            loads: list[WatchedLoad] = []
            for (entry, when), found in zip(reading.rows, sums, strict=True):
                if when and entry.sum is not None:
                    self.judged(entry.check)
                    if entry.sum != found:
                        wrong.append((entry, when))
                elif entry.key is not None:
                    loads += [entry.load] if entry.load is not None else []
                    self._filled(entry, found)
                entry.sum = found
            for entry, when in wrong:
                self.changed(entry, when)
            for load in dict.fromkeys(loads):
                self._ended(load)
            reading.then()
