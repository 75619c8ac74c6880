"""Parts of a watched engine as states that the invariants judge: some blocks, or one request.

An invariant is given what an event has touched, never the whole engine, so the cost does not grow
with the pool. A part is closed: with a block come all requests that hold it and all its keys.
"""

import math
from collections.abc import Collection, Iterator
from typing import Any

from vllm.v1.core.kv_cache_utils import get_group_id

from kvproof.live import adapt, queues, view
from kvproof.live.watch.contents import Contents
from kvproof.live.watch.several import Several
from kvproof.live.watch.shape import Shape
from kvproof.live.watch.tokens import Prefix, Tokens, tokens_of
from kvproof.model import state
from kvproof.model.memory import first_seen
from kvproof.model.numbered import Some
from kvproof.model.state import Block, Engine, Key, Request
from kvproof.model.step import Read


class Watched:
    """A request of a watched engine. `tables` are its blocks by group when last seen, `hit` and
    `external` the tokens of its last admission. `named` is the number of its block hashes whose
    blocks are cached, by group and block size. `written` is the number of tokens whose KV is noted
    as written. `submitted` is the number of tokens of its prompt as it arrived. `queued` is the
    status with which its queues were looked at last."""

    def __init__(self, live: Any, tokens: Tokens, groups: int) -> None:
        self.live = live
        self.tokens = tokens
        self.tables: list[list[Any]] = [[] for _ in range(groups)]
        self.hit = self.external = self.written = 0
        self.named: dict[tuple[int, int], int] = {}
        self.submitted = int(live.num_prompt_tokens)
        self.queued = ""

    def know(self) -> None:
        """Read the tokens that the request has got. A prefill engine may cut off the last one."""
        if len(self.live.all_token_ids) < len(self.tokens):
            self.tokens = tokens_of(self.live)
        self.tokens.extend(self.live.all_token_ids[len(self.tokens) :])


class Slices:
    """The parts of one engine. `mapped` has the keys under which the hash map has a block. A key
    stands for the first `ends` tokens of `named`. `holders` has the requests that hold a block, as
    often as it is in their tables. `unseen` counts the blocks that were read and whose content is
    not known."""

    def __init__(self, scheduler: Any, shape: Shape, contents: Contents) -> None:
        self.scheduler = scheduler
        self.shape = shape
        self.cfg = shape.engine
        self.contents = contents
        self.pool = scheduler.kv_cache_manager.block_pool
        self.mapped: Several[bytes] = Several()
        self.named: dict[bytes, Tokens] = {}
        self.ends: dict[bytes, int] = {}
        self.holders: Several[str] = Several()
        self.deferred: list[int] = []
        self.unseen = 0
        self.unit = math.lcm(*(group.block_size for group in self.cfg.groups))

    # Blocks.

    def of_blocks(self, ids: Collection[int]) -> Engine:
        """These blocks: their counts, keys and places, without their content. A request that holds
        some of them is there with these alone."""
        pool_blocks, null = self.pool.blocks, self.pool.null_block
        known: Some[Block] = Some()
        cached: dict[Key, list[int]] = {}
        further = adapt.further_hashes(self.pool, self.cfg.partial_block_hits)
        for number in sorted(ids):
            block = pool_blocks[number]
            raw = [block.block_hash, *further.get(number, ())]
            keys = [self._raw(each) for each in raw if each is not None]
            refs = 0 if block is null else block.ref_cnt
            known[number] = Block(refs, keys[0] if keys else None, tuple(keys[1:]))
            for each in self.mapped.of(number):
                cached.setdefault(self._raw(each), []).append(number)
        return Engine(
            self.cfg.name,
            known,  # type: ignore[arg-type]
            tuple(number for number in known if _is_free(pool_blocks[number])),
            cached=tuple((key, tuple(blocks)) for key, blocks in cached.items()),
            requests=tuple(self._holding(known)),
            deferred=((1, tuple(b for b in self.deferred if b in known)),),
        )

    def _raw(self, key: Any) -> Key:
        return get_group_id(key), bytes(key).hex()[:12]

    def _holding(self, known: Collection[int]) -> Iterator[Request]:
        held: dict[str, list[int]] = {}
        for number in known:
            for name in self.holders.of(number):
                held.setdefault(name, []).append(number)
        for name, blocks in held.items():
            yield Request(name, state.RUNNING, "", 0, 0, tables=(tuple(blocks),))

    def of_content(self, number: int) -> Engine | None:
        """One cached block with its content and the prefixes that its keys name. None where it is
        not known what the block holds or its key names."""
        keys = [each for each in self.mapped.of(number) if each in self.named]
        if not keys or self.contents.of(number) is None:
            return None
        cut = min(self._start(get_group_id(key), self.ends[key]) for key in keys)
        cached = []
        for key in keys:
            tokens, end = self.named[key], self.ends[key]
            cached.append(((get_group_id(key), tokens.text(cut, end)), (number,)))
        memory = Some({number: self.contents.seen(number, cut)})
        known = Some({number: Block(1)})
        return Engine(
            self.cfg.name,
            known,  # type: ignore[arg-type]
            (),
            cached=tuple(cached),
            memory=memory,  # type: ignore[arg-type]
        )

    def _start(self, group: int, end: int) -> int:
        """The position of the first token of the block that ends the prefix of `end` tokens, or of
        an earlier one."""
        size = self.cfg.groups[group].block_size
        start: int = (end - 1) // size * size // self.unit * self.unit
        return start

    # Requests.

    def of_request(self, watched: Watched) -> Engine:
        """One request, without the tokens at its beginning whose blocks it has settled."""
        live, name = watched.live, watched.live.request_id
        cut = self._cut(watched)
        prompt = live.num_prompt_tokens
        counters = (each.num_cached_block.get(name, 0) for each in self.shape.managers)
        sizes = [group.block_size for group in self.cfg.groups]
        hit = max(watched.hit - cut, 0)
        request = Request(
            name,
            self._status(watched),
            watched.tokens.text(cut, prompt),
            max(watched.submitted - cut, 0),
            live.max_tokens,
            output=watched.tokens.text(max(cut, prompt), len(watched.tokens)),
            computed=max(live.num_computed_tokens - cut, 0),
            tables=tuple(
                tuple(block.block_id for block in table[cut // size :])
                for table, size in zip(watched.tables, sizes, strict=True)
            )
            if any(watched.tables)
            else (),
            num_cached_blocks=tuple(
                max(n - cut // s, 0) for n, s in zip(counters, sizes, strict=True)
            ),
            hit=hit,
            external=max(watched.hit + watched.external - cut, 0) - hit,
        )
        running = (name,) * self.scheduler.running.count(live)
        return Engine(self.cfg.name, (), (), requests=(request,), running=running)

    def _status(self, watched: Watched) -> str:
        """The status of a request. The queues are looked at when it has changed: they are long."""
        found = view.status_alone(self.scheduler, watched.live)
        if found != watched.queued:
            watched.queued = found
            found = view.status(self.scheduler, watched.live)
        return found

    @staticmethod
    def group_of(key: Any) -> int:
        """The cache group of a key."""
        return int(get_group_id(key))

    def queues(self) -> list[Any]:
        """The queues of waiting requests."""
        return queues.queues(self.scheduler)

    def status(self, live: Any) -> str:
        """The status of a request, whatever the queues have."""
        return view.status_alone(self.scheduler, live)

    def _cut(self, watched: Watched) -> int:
        """Tokens at the beginning of a request that are left out: whole blocks of each group, none
        of which a window or a state still holds."""
        cut = min(int(watched.live.num_computed_tokens), len(watched.tokens))
        for group, table in zip(self.cfg.groups, watched.tables, strict=True):
            entries = max(len(table) - 2, 0)
            if group.kind != "full":
                held = (i for i, block in enumerate(table) if not block.is_null)
                entries = min(entries, next(held, 0))
            cut = min(cut, entries * group.block_size)
        return cut // self.unit * self.unit

    # What a request reads for the first time.

    def reads(self, watched: Watched, end: int, *, attention: bool) -> Iterator[Read]:
        """What a step reads of the first `end` tokens of a request, in attention groups or in the
        others, and does not find: of each such block the first slot."""
        name, tokens = watched.live.request_id, watched.tokens
        for index, group in enumerate(self.cfg.groups):
            if not end or group.attention != attention:
                continue
            size, table = group.block_size, watched.tables[index]
            first = end - 1 if not group.attention else 0
            first = first_seen(end, group.window) if group.window else first
            for column in range(first // size, -(-end // size)):
                start, stop = max(first, column * size), min(end, (column + 1) * size)
                block = table[column].block_id if column < len(table) else state.NULL
                holds = self.contents.holds(block, index, tokens, start, stop)
                if block != state.NULL and holds is not False:
                    self.unseen += holds is None
                    continue
                cut = column * size // self.unit * self.unit
                content = self.contents.seen(block, cut)
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


def _is_free(block: Any) -> bool:
    """Whether the free queue has a block: then it has neighbours."""
    return block.prev_free_block is not None and block.next_free_block is not None
