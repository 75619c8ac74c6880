"""The KV caches of a worker: real tensors, laid out by vLLM, with numbers in place of KV."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from kvproof.connectors.allocated import allocated, attends, of_layer, slots
from kvproof.connectors.numbers import NUMBERS
from kvproof.model.facts.connectors import ANOTHER_RANK, Slot

NO_NUMBER = float("nan")
"""The value of a slot whose bytes are not all of one number, as after half a copy."""


class LayerCache(NamedTuple):
    """A layer, its group, and its cache as `[parts of blocks, slots of a part, ...]` of float32.
    Beside the current content it keeps the snapshot of the last `Caches.look`. A block consists of
    `parts` consecutive parts, which are the kernel blocks."""

    name: str
    group: int
    now: torch.Tensor
    seen: torch.Tensor
    parts: int = 1

    def place(self, block: int, offset: int) -> tuple[int, int]:
        """The part in which a slot of a block lies, and the index of the slot in that part."""
        part, at = divmod(offset, self.now.size(1))
        return block * self.parts + part, at

    def slot(self, part: int, at: int) -> tuple[int, int]:
        """The block of a part, and the index in that block of slot `at` of the part."""
        block, behind = divmod(part, self.parts)
        return block, behind * self.now.size(1) + at

    def whole(self, block: int) -> slice:
        """All parts of a block."""
        return slice(block * self.parts, (block + 1) * self.parts)


class SharedBytes(NamedTuple):
    """Bytes that several layers share: the current content, and the snapshot of the last
    `Caches.look`."""

    now: torch.Tensor
    seen: torch.Tensor

    @classmethod
    def of(cls, storage: torch.UntypedStorage) -> "SharedBytes":
        """The bytes of a storage."""
        now = torch.tensor([], dtype=torch.uint8).set_(storage)
        return cls(now, now.clone())


class Shards(NamedTuple):
    """The part of a layer that the worker of a rank has, where the layer is divided among `ranks`
    ranks of tensor parallelism: some of the KV `heads` of the model, or of the heads of each of its
    `states`. If all heads are alike, there is one."""

    rank: int = 0
    ranks: int = 1
    heads: int = 1
    states: int = 1

    def of(self, layer: str, spec: Any) -> tuple[str, ...]:
        """A whole layer, or the parts of it that the worker has. Ranks beyond the number of heads
        share heads."""
        parts = self.heads if attends(spec) else self.states
        if parts == 1:
            return (layer,)
        first, here = self.rank * parts // self.ranks, max(parts // self.ranks, 1)
        return tuple(f"{layer}, part {part}" for part in range(first, first + here))


ALONE = Shards()
"""The shards of a worker that has all of each layer, or all of the layers for its tokens."""


class Caches:
    """The caches of one worker. `named` has vLLM's views by layer name, as a connector gets them
    (attention: `[blocks, heads, tokens of a block, values]`; Mamba: the pages of the states).
    `rank` is the worker's rank, and `parts` has, by layer name, the parts of the layer that the
    worker has. An attention block consists of `kernel_blocks` kernel blocks. The tensors may have
    been `made` already."""

    def __init__(
        self,
        kv_cache_config: Any,
        layout: Any,
        shards: Shards = ALONE,
        kernel_blocks: int = 1,
        made: dict[str, Any] | None = None,
    ) -> None:
        self.rank = shards.rank
        self.parts: dict[str, tuple[str, ...]] = {}
        self.named: dict[str, Any] = made or allocated(kv_cache_config, layout, kernel_blocks)
        self.memory: dict[int, SharedBytes] = {}
        self.layers = []
        for index, group in enumerate(kv_cache_config.kv_cache_groups):
            for name in group.layer_names:
                spec = of_layer(group, name)
                self.parts[name] = shards.of(name, spec)
                now = slots(self.named[name], spec)
                storage = now.untyped_storage()
                memory = self.memory.setdefault(storage.data_ptr(), SharedBytes.of(storage))
                seen = torch.tensor([], dtype=torch.float32).set_(
                    memory.seen.untyped_storage(), now.storage_offset(), now.size(), now.stride()
                )
                parts = kernel_blocks if attends(spec) else 1
                self.layers.append(LayerCache(name, index, now, seen, parts))

    def write(self, layer: LayerCache, block: int, offset: int, prefix: str) -> None:
        """Write the numbers of a prefix into a slot, one for each part of the layer."""
        for own, values in self._split(layer.name, layer.now[layer.place(block, offset)]):
            values.fill_(float(NUMBERS.of(own, prefix)))

    def bytes_of(self, layer: LayerCache, block: int) -> tuple[int, int]:
        """The address of a block's first byte and the address after its last byte. Where keys and
        values lie apart, these are the addresses of its keys."""
        held = layer.now[layer.whole(block)]
        part = held[0]
        size = sum((n - 1) * s for n, s in zip(part.size(), part.stride(), strict=True)) + 1
        begin = held.data_ptr()
        if held.stride(0) < size:  # keys of all blocks come before values
            size = held.stride(0)
        size += (layer.parts - 1) * held.stride(0)
        return begin, begin + size * held.element_size()

    def found(self, layer: LayerCache, block: int, offset: int) -> str | None:
        """The prefix that a slot holds."""
        return self._prefix(layer.name, layer.now[layer.place(block, offset)])

    def unlike(
        self, layer: LayerCache, places: Sequence[tuple[int, int]], prefixes: Sequence[str]
    ) -> list[int]:
        """The indexes of those of these slots (blocks and offsets) that do not hold their
        prefix."""
        if not places or self.parts[layer.name][1:]:
            at = enumerate(zip(places, prefixes, strict=True))
            return [n for n, (place, prefix) in at if self.found(layer, *place) != prefix]
        [own] = self.parts[layer.name]
        parts, slots = zip(*(layer.place(*place) for place in places), strict=True)
        held = layer.now[list(parts), list(slots)].flatten(1)
        expected = torch.tensor([NUMBERS.of(own, prefix) for prefix in prefixes])
        wrong: list[int] = (held != expected.unsqueeze(1)).any(dim=1).nonzero().flatten().tolist()
        return wrong

    def _split(self, layer: str, values: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """The parts of a layer that the worker has, and the values of each part in a slot: for
        several parts `[..., heads, values]`, for a state `[values x heads]`."""
        own = self.parts[layer]
        if not own[1:]:
            return zip(own, (values,), strict=True)
        of_state = values.dim() == 1
        held = (
            values.unflatten(0, (-1, len(own))).unbind(1)
            if of_state
            else values.chunk(len(own), -2)
        )
        return zip(own, held, strict=True)

    def _prefix(self, layer: str, values: torch.Tensor) -> str | None:
        found = {self._part(layer, own, held) for own, held in self._split(layer, values)}
        return found.pop() if len(found) == 1 else None

    def _part(self, layer: str, own: str, values: torch.Tensor) -> str | None:
        flat = values.flatten()
        whole = bool((flat == flat[0]).all())
        number = float(flat[0]) if whole else NO_NUMBER
        found = NUMBERS.prefix(own, number)
        if found is None and own != layer:
            of_layer, prefix = NUMBERS.home(number)
            if of_layer.startswith(f"{layer}, "):
                return ANOTHER_RANK + prefix
        return found

    def erase(self, blocks: Iterable[int]) -> None:
        """Zero these blocks in all layers."""
        for block in blocks:
            for layer in self.layers:
                layer.now[layer.whole(block)] = 0.0

    def copy(self, source: int, target: int) -> None:
        """Copy a block in all layers."""
        for layer in self.layers:
            layer.now[layer.whole(target)] = layer.now[layer.whole(source)]

    def look(self) -> None:
        """Take a snapshot of the memory: `changes` compares with it."""
        for memory in self.memory.values():
            memory.seen.copy_(memory.now)

    def changes(self) -> Iterator[tuple[LayerCache, Slot, str | None]]:
        """The slots that changed since `look`, each with the prefix that it held before."""
        if all(torch.equal(memory.seen, memory.now) for memory in self.memory.values()):
            return
        for layer in self.layers:
            # Bits are compared: a NaN is unlike itself.
            differs = layer.now.view(torch.int32) != layer.seen.view(torch.int32)
            places = differs.flatten(2).any(dim=2).nonzero().tolist()
            for part, at in places:
                held = self._prefix(layer.name, layer.seen[part, at])
                yield layer, Slot(layer.name, layer.group, *layer.slot(part, at)), held
