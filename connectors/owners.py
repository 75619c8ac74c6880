"""Who holds a block, which loads are under way, and what each slot should hold.

The holder of a block is read off the real scheduler. What a load promises is what the connector
answered the scheduler. What a token's slot should hold follows from the request's text alone.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from kvproof.connectors.caches import Caches, LayerCache
from kvproof.model.config import EngineConfig, Group
from kvproof.model.facts.connectors import Loaded, Promised, Slot, Wrote
from kvproof.model.state import NULL, SAMPLED


class Owners:
    """The requests of one engine. `loads` has, by request, the promised loads that have not ended.
    `model` is the name of the model if it is not the first one, because its KV differs. `judged`
    counts the compared slots, by kind of comparison. With `local`, windows are chunked local
    attention; the tokens of an attention block lie on `ranks` ranks in turn."""

    def __init__(
        self, cfg: EngineConfig, scheduler: Any, local: bool = False, ranks: int = 1
    ) -> None:
        self.cfg, self.scheduler, self.local, self.ranks = cfg, scheduler, local, ranks
        self.model = ""
        self.prompts: dict[str, str] = {}
        self.beside: dict[str, str] = {}
        self.loads: dict[str, Promised] = {}
        self.judged: Counter[str] = Counter()

    def text(self, request: str, tokens: int) -> str:
        """The first tokens of a request: its prompt, then sampled tokens. In front of them stands
        what else the KV depends on, such as a salt."""
        return (
            self.model
            + self.beside[request]
            + self.prompts[request][:tokens].ljust(tokens, SAMPLED)
        )

    def tables(self, request: str) -> tuple[list[int], ...]:
        """The block tables of a request, one for each group."""
        tables: tuple[list[int], ...] = self.scheduler.kv_cache_manager.get_block_ids(request)
        return tables

    def holders(self, block: int) -> Iterator[tuple[str, int, int]]:
        """The requests that have a block, with the group and the index in its table."""
        for request in self.scheduler.requests:
            for group, table in enumerate(self.tables(request)):
                if block in table:
                    yield request, group, table.index(block)

    def loading_blocks(self) -> tuple[int, ...]:
        """The blocks of requests that are loading."""
        held = {b for name in self.loads for table in self.tables(name) for b in table}
        return tuple(sorted(held - {NULL}))

    def holding(self, blocks: Iterable[int]) -> set[str]:
        """The requests that have one of these blocks."""
        wanted = set(blocks)
        return {
            name
            for name in self.scheduler.requests
            if any(wanted.intersection(table) for table in self.tables(name))
        }

    def judged_write(
        self, slot: Slot, rank: int, held: str | None, found: str | None
    ) -> Iterator[Wrote]:
        """Judge a change of a slot of this rank by the connector. Returns it as a fact if no load
        may change the slot. A load may fill the blocks of its own request, except slots of tokens
        that were not promised and that hold the right content."""
        if slot.block == NULL:
            return
        self.judged["writes"] += 1
        group = self.cfg.groups[slot.group]
        first = ""
        for request, home, index in self.holders(slot.block):
            if home != slot.group:
                return  # the layers of the groups share the bytes of a block: one group has it
            first = first or request
            load = self.loads.get(request)
            if load is None:
                continue
            token = index * group.block_size + slot.offset * self.ranks + rank % self.ranks
            # A request whose load ends later computes nothing behind it yet.
            promised = load.start <= token and (load.later or token < load.start + load.tokens)
            if promised or not group.attention or held != self.text(request, token + 1):
                return
            first = request
        yield Wrote(slot, first, held, found)

    def loaded_at_once(self, caches: Caches, layer: LayerCache) -> Iterator[Loaded]:
        """The promised slots of a layer with wrong content after a load within this step."""
        for load in self.loads.values():
            if not load.later:
                yield from self._left_wrong(caches, layer, load)

    def loaded_later(self, caches: Caches, request: str, invalid: set[int]) -> Iterator[Loaded]:
        """The promised slots, of any layer, with wrong content after a load that was reported as
        ended. Slots of `invalid` blocks are left out."""
        load = self.loads.get(request)
        if load is None or request not in self.scheduler.requests:
            return
        for layer in caches.layers:
            for wrong in self._left_wrong(caches, layer, load):
                if wrong.slot.block not in invalid:
                    yield wrong

    def _left_wrong(self, caches: Caches, layer: LayerCache, load: Promised) -> Iterator[Loaded]:
        for token, block, offset in self._promised(layer.group, load, caches.rank):
            self.judged["promised tokens"] += 1
            expected = self.text(load.request, token + 1)
            found = caches.found(layer, block, offset)
            if found != expected:
                slot = Slot(layer.name, layer.group, block, offset)
                yield Loaded(load.request, slot, token, expected, found)

    def _promised(self, index: int, load: Promised, rank: int) -> Iterator[tuple[int, int, int]]:
        """Token, block and offset of each slot that a load must fill in a group on this rank: the
        promised tokens that the next token reads, or the state after them."""
        group = self.cfg.groups[index]
        table, end = self.tables(load.request)[index], load.start + load.tokens
        if not group.attention:
            if group.aligned:
                yield end - 1, table[(end - 1) // group.block_size], 0
            return
        first = max(load.start, read_from(group, end, self.local))
        for token in range(first, end):
            block, offset = table[token // group.block_size], self.offset(group, token, rank)
            if block != NULL and offset is not None:
                yield token, block, offset

    def offset(self, group: Group, token: int, rank: int) -> int | None:
        """The slot of a token in its attention block; None if another rank than this has it."""
        turn, its = divmod(token % group.block_size, self.ranks)
        return turn if its == rank % self.ranks else None


def read_from(group: Group, token: int, local: bool) -> int:
    """The first token that a token reads in an attention group."""
    if not group.window:
        return 0
    return token // group.window * group.window if local else max(token - group.window + 1, 0)
