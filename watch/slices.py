"""This module makes parts of a watched engine into states that the invariants judge: some blocks,
or one request.

An invariant is given what an event has touched, never the whole engine, so the cost does not grow
with the pool. A part is closed: with a block come all requests that hold it and all its keys.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from vllm.v1.core.kv_cache_utils import get_group_id

from kvproof.live import adapt
from kvproof.live.observer import view
from kvproof.model import state
from kvproof.model.memory import first_seen
from kvproof.model.numbered import Some
from kvproof.model.state import Block, Engine, Key, Lists, Request
from kvproof.model.step import Read
from kvproof.watch.contents import Contents
from kvproof.watch.shape import Shape
from kvproof.watch.tokens import Prefix, Tokens, tokens_of

Value = TypeVar("Value")


class Several(Generic[Value]):
    """Keep the values of each block. Most blocks have none or one, which is kept as it is: a list
    each would be one more object for Python's garbage collector to look at."""

    def __init__(self, blocks: int) -> None:
        self._of: list[Any] = [None] * (blocks + 1)  # the last is for the id -1

    def __iter__(self) -> Iterator[int]:
        return (number for number, found in enumerate(self._of) if found is not None)

    def of(self, block: int) -> tuple[Value, ...]:
        """Return the values of a block, in the order in which they came."""
        found = self._of[block]
        if found is None:
            return ()
        return found if isinstance(found, tuple) else (found,)

    def has_one(self, block: int) -> bool:
        """Whether a block has exactly one value."""
        found = self._of[block]
        return found is not None and not isinstance(found, tuple)

    def put(self, block: int, value: Value) -> None:
        """Add this value to a block, unless the block has it."""
        if self._of[block] is None:
            self._of[block] = value
        elif value not in self.of(block):
            self.add((block,), value)

    def add(self, blocks: Iterable[int], value: Value) -> None:
        """Add this value to each of these blocks, also a second time."""
        of = self._of
        for block in blocks:
            found = of[block]
            if found is None:
                of[block] = value
            else:
                of[block] = (*self.of(block), value)

    def remove(self, blocks: Iterable[int], value: Value) -> None:
        """Remove this value once from each of these blocks that has it."""
        of = self._of
        for block in blocks:
            found = of[block]
            if found == value:
                of[block] = None
            elif isinstance(found, tuple) and value in found:
                left = list(found)
                left.remove(value)
                of[block] = tuple(left) if len(left) > 1 else left[0]

    def clear(self) -> None:
        """Remove all values."""
        self._of = [None] * len(self._of)


class WatchedRequest:
    """A request of a watched engine. `tables` are its blocks by group, `counters` the numbers of
    its cached blocks, `computed` its computed tokens and `placeholders` those of tokens in flight,
    all when last seen; `hit` and `external` are the tokens of its last admission, and `loads` the
    blocks, by group, that this admission took for the tokens of the connector. `named` is the
    number of its block hashes whose blocks are cached, by group. `written` is the number of tokens
    whose KV is noted as written. `submitted` is the number of tokens of its prompt as it arrived.
    `queued` is the status with which its queues were looked at last. `counted` says that it was
    admitted, and what it shares with earlier requests was counted."""

    def __init__(self, live: Any, tokens: Tokens, groups: int) -> None:
        self.live = live
        self.tokens = tokens
        self.tables: list[list[Any]] = [[] for _ in range(groups)]
        self.counters = [0] * groups
        self.hit = self.external = self.written = self.computed = self.placeholders = 0
        self.loads: Lists = ()
        self.named: dict[int, int] = {}
        self.submitted = int(live.num_prompt_tokens)
        self.queued = ""
        self.counted = False

    def know(self) -> None:
        """Read the tokens that the request has got. A prefill engine may cut off the last one."""
        if len(self.live.all_token_ids) < len(self.tokens):
            self.tokens = tokens_of(self.live)
        self.tokens.extend(self.live.all_token_ids[len(self.tokens) :])


class Named(NamedTuple):
    """A block that was put into the hash map. Its key stands for the first `end` tokens of a
    request."""

    block: int
    group: int
    watched: WatchedRequest
    end: int


class Slices:
    """Make the parts of one engine. `mapped` has the keys under which a block came into the hash
    map, and `ends` the number of tokens of the keys that end inside a block. `holders` has the
    requests that hold a block, as often as it is in their tables. `unseen` counts the blocks that
    were read and whose content is not known."""

    def __init__(self, scheduler: Any, shape: Shape, contents: Contents) -> None:
        self.scheduler = scheduler
        self.shape = shape
        self.cfg = shape.engine
        self.contents = contents
        self.pool = scheduler.kv_cache_manager.block_pool
        self.mapped: Several[bytes] = Several(len(self.pool.blocks))
        self.ends: dict[bytes, int] = {}
        self.holders: Several[str] = Several(len(self.pool.blocks))
        self.deferred: list[int] = []
        self.unseen = 0
        self.sizes = [group.block_size for group in self.cfg.groups]
        self.unit = math.lcm(*self.sizes)

    # Blocks.

    def of_blocks(self, ids: Collection[int]) -> Engine:
        """Return these blocks with their counts, keys and places, without their content. A request
        that holds some of them has only these."""
        pool_blocks, mapped = self.pool.blocks, self.mapped
        entries = self.pool.cached_block_hash_to_block._cache
        known: Some[Block] = Some()
        cached: dict[Key, list[int]] = {}
        further = adapt.further_hashes(self.pool, self.cfg.partial_block_hits)
        for number in sorted(ids):
            block = pool_blocks[number]
            seen = known[number] = view.block(block, further, _key)
            for each in mapped.of(number):
                if number in view.blocks_of(entries.get(each)):
                    name = seen.key if each is block.block_hash and seen.key else _key(each)
                    cached.setdefault(name, []).append(number)
        return Engine(
            self.cfg.name,
            known,  # type: ignore[arg-type]
            tuple(number for number in known if _is_free(pool_blocks[number])),
            cached=tuple((key, tuple(blocks)) for key, blocks in cached.items()),
            requests=tuple(self._holding(known)),
            deferred=((1, tuple(b for b in self.deferred if b in known)),),
        )

    def _holding(self, known: Collection[int]) -> Iterator[Request]:
        held: dict[str, list[int]] = {}
        for number in known:
            for name in self.holders.of(number):
                held.setdefault(name, []).append(number)
        for name, blocks in held.items():
            yield Request(name, state.RUNNING, "", 0, 0, tables=(tuple(blocks),))

    def of_content(self, named: Iterable[Named]) -> tuple[Engine, int, int]:
        """Return cached blocks with their content and the prefixes that their keys name, the number
        of blocks that were looked at, and the number of those whose content is not known. The
        latter are left out, and so is a whole block that holds the very hashes of its key: texts
        would take long, and nothing is wrong with it."""
        known: Some[Block] = Some()
        memory: Some[state.Content | None] = Some()
        cached, looked, unseen = [], 0, 0
        for block, group, watched, end in named:
            size, attention = self.sizes[group], self.cfg.groups[group].attention
            last = end - self.cfg.hash_lookahead_tokens
            start = (last - 1) // size * size
            tokens = watched.tokens
            holds = self.contents.holds(block, group, tokens, start if attention else 0, last)
            if holds is None:
                unseen += 1
                continue
            looked += 1
            if holds and last % size == 0:
                continue
            cut = start // self.unit * self.unit
            known[block] = Block(1)
            cached.append(((group, tokens.text(cut, end)), (block,)))
            memory[block] = self.contents.seen(block, tokens, cut)
        engine = Engine(
            self.cfg.name,
            known,  # type: ignore[arg-type]
            (),
            cached=tuple(cached),
            memory=memory,  # type: ignore[arg-type]
        )
        return engine, looked, unseen

    def key_text(self, key: Any, cut: int, first: int) -> Key:
        """Return a key of a cached block whose first token has the position `first`, without the
        first `cut` tokens. Of its text only the length is known, and what the key is."""
        group = get_group_id(key)
        whole = first + self.sizes[group] + self.cfg.hash_lookahead_tokens
        value = int.from_bytes(bytes(key)[:8])
        return group, Tokens.unknown(value, self.ends.get(key, whole), cut)

    # Requests.

    def of_requests(self, requests: tuple[Request, ...]) -> Engine:
        """Return some requests, with their places in the running queue."""
        names = {each.id for each in requests}
        queue = self.scheduler.running
        running = tuple([each.request_id for each in queue if each.request_id in names])
        return Engine(self.cfg.name, (), (), requests=requests, running=running)

    def request(self, watched: WatchedRequest) -> Request:
        """Return a request, without the tokens at its beginning whose blocks are settled."""
        live, tokens, sizes = watched.live, watched.tokens, self.sizes
        cut = self._cut(watched)
        prompt = live.num_prompt_tokens
        hit = max(watched.hit - cut, 0)
        return Request(
            live.request_id,
            self._status(watched),
            tokens.text(cut, prompt) if cut < prompt else "",
            max(watched.submitted - cut, 0),
            live.max_tokens,
            output=state.SAMPLED * (len(tokens) - max(cut, prompt)),
            computed=max(live.num_computed_tokens - cut, 0),
            tables=tuple(
                [
                    tuple([block.block_id for block in table[cut // size :]])
                    for table, size in zip(watched.tables, sizes, strict=True)
                ]
            )
            if any(watched.tables)
            else (),
            num_cached_blocks=tuple(
                [max(n - cut // s, 0) for n, s in zip(watched.counters, sizes, strict=True)]
            ),
            hit=hit,
            external=max(watched.hit + watched.external - cut, 0) - hit,
        )

    def _status(self, watched: WatchedRequest) -> str:
        """Return the status of a request. The queues are looked at when it has changed: they are
        long."""
        found = view.status_alone(self.scheduler, watched.live)
        if found != watched.queued:
            watched.queued = found
            found = view.status(self.scheduler, watched.live)
        return found

    def queues(self) -> list[Any]:
        """Return the queues of waiting requests."""
        return view.queues(self.scheduler)

    def status(self, live: Any) -> str:
        """Return the status of a request, without a look into the queues."""
        return view.status_alone(self.scheduler, live)

    def _cut(self, watched: WatchedRequest) -> int:
        """Return the number of tokens at the beginning of a request that are left out: whole blocks
        of each group, none of which a window or a state still holds."""
        cut = min(int(watched.live.num_computed_tokens), len(watched.tokens))
        for group, table in zip(self.cfg.groups, watched.tables, strict=True):
            entries = max(len(table) - 2, 0)
            if group.kind != "full":
                held = (i for i, block in enumerate(table) if not block.is_null)
                entries = min(entries, next(held, 0))
            cut = min(cut, entries * group.block_size)
        return cut // self.unit * self.unit

    # What a request reads for the first time.

    def reads(
        self, watched: WatchedRequest, tables: Sequence[Sequence[int]], end: int, *, attention: bool
    ) -> Iterator[Read]:
        """Return what a step reads of the first `end` tokens of a request, in attention groups or
        in the others, through the block tables that the worker got, and does not find: of each such
        block the first slot."""
        name, tokens = watched.live.request_id, watched.tokens
        for index, group in enumerate(self.cfg.groups):
            if not end or group.attention != attention:
                continue
            size, table = group.block_size, tables[index]
            first = end - 1 if not group.attention else 0
            first = first_seen(end, group.window) if group.window else first
            for column in range(first // size, -(-end // size)):
                start, stop = max(first, column * size), min(end, (column + 1) * size)
                block = table[column] if column < len(table) else state.NULL
                holds = self.contents.holds(block, index, tokens, start, stop)
                if block != state.NULL and holds is not False:
                    self.unseen += holds is None
                    continue
                cut = column * size // self.unit * self.unit
                content = self.contents.seen(block, tokens, cut)
                at = start
                while (
                    group.attention
                    and at < stop - 1
                    and self.contents.holds(block, index, tokens, at, at + 1)
                ):
                    at += 1
                slot = at % size if group.attention else 0
                found = None
                if content is not None and content.group == index:
                    found = content.slots[slot]
                expected = tokens.text(cut, at + 1 if group.attention else end)
                yield Read(self.cfg.name, name, index, block, slot, expected, found or Prefix(""))


def _key(key: Any) -> Key:
    """Return a key of the hash map in the terms of the invariants."""
    return get_group_id(key), key[:6].hex()


def _is_free(block: Any) -> bool:
    """Whether a block is in the free queue: then it has neighbours."""
    return block.prev_free_block is not None and block.next_free_block is not None
