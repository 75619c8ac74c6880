"""Who holds a block, which loads are under way, and what each slot should hold.

The holder of a block is read off the real scheduler. What a load promises is what the connector
answered the scheduler. What a token's slot should hold follows from the request's text alone.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kvproof.live.connectors.caches import Caches, LayerCache
from kvproof.model.config import EngineConfig, Group
from kvproof.model.facts.connectors import (
    Holder,
    LoadedSlot,
    LoadOver,
    Promised,
    Slot,
    Written,
    WrittenSlot,
)
from kvproof.model.state import NULL, SAMPLED


class Owners:
    """The requests of one engine, which has this `scheduler`. `loads` has, by request, the promised
    loads that have not ended. `model` is the name of the model if it is not the first one, because
    its KV differs. `counted` counts what happened of which there is no fact. With `local`, windows
    are chunked local attention; the tokens of an attention block lie on `ranks` ranks in turn."""

    def __init__(self, cfg: EngineConfig, local: bool = False, ranks: int = 1) -> None:
        self.cfg, self.local, self.ranks = cfg, local, ranks
        self.scheduler: Any = None
        self.model = ""
        self.prompts: dict[str, str] = {}
        self.beside: dict[str, str] = {}
        self.loads: dict[str, Promised] = {}
        self.counted: Counter[str] = Counter()

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

    def written(
        self, caches: Caches, changes: Iterable[tuple[LayerCache, Slot, str | None]]
    ) -> Iterator[Written]:
        """The fact about slots that the connector changed, each with what it held before."""
        found = (self._written(caches, *change) for change in changes)
        if slots := tuple(each for each in found if each is not None):
            yield Written(slots)

    def _written(
        self, caches: Caches, layer: LayerCache, slot: Slot, held: str | None
    ) -> WrittenSlot | None:
        group = self.cfg.groups[slot.group]
        holders = []
        if slot.block == NULL:
            return None  # cannot be judged: nobody reads the null block
        for request, home, index in self.holders(slot.block):
            if home != slot.group:
                # cannot be judged: the layers of the groups share the bytes of a block, and what
                # is a slot of the group that has the block is none of this layer
                return None
            turn = slot.offset * self.ranks + caches.rank % self.ranks
            token = index * group.block_size + turn
            expected = self.text(request, token + 1) if group.attention else ""
            holders.append(Holder(request, token, expected, self.loads.get(request)))
        found = caches.found(layer, slot.block, slot.offset)
        return WrittenSlot(slot, group.attention, held, found, tuple(holders))

    def loaded_at_once(self, caches: Caches, layer: LayerCache) -> Iterator[LoadOver]:
        """The facts about a layer after the loads within this step."""
        for load in self.loads.values():
            if not load.later:
                yield from self._over(caches, (layer,), load, set())

    def loaded_later(self, caches: Caches, request: str, invalid: set[int]) -> Iterator[LoadOver]:
        """The fact about all layers after a load that was reported as ended, but for the slots of
        `invalid` blocks."""
        load = self.loads.get(request)
        if load is not None and request in self.scheduler.requests:
            yield from self._over(caches, caches.layers, load, invalid)

    def _over(
        self, caches: Caches, layers: Sequence[LayerCache], load: Promised, invalid: set[int]
    ) -> Iterator[LoadOver]:
        slots = tuple(
            LoadedSlot(
                Slot(layer.name, layer.group, block, offset),
                token,
                self.text(load.request, token + 1),
                caches.found(layer, block, offset),
            )
            for layer in layers
            for token, block, offset in self._promised(layer.group, load, caches.rank)
            # cannot be judged: vLLM computes the tokens of blocks that are reported as failed
            if block not in invalid
        )
        if slots:
            yield LoadOver(load.request, slots)

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
