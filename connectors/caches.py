"""The KV caches of a worker: real tensors, laid out by vLLM, with numbers in place of KV."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch

from kvproof.connectors.allocated import allocated, attends, slots
from kvproof.connectors.facts import ANOTHER_RANK, Slot
from kvproof.connectors.numbers import Numbers

NO_NUMBER = float("nan")
"""What a slot reads as if its bytes are not all of one number: half a copy."""


class LayerCache(NamedTuple):
    """A layer, its group, and its cache as `[blocks, slots of a block, ...]` of float32: as it is
    now, and as it was when the caches were last looked at."""

    name: str
    group: int
    now: torch.Tensor
    seen: torch.Tensor


class SharedBytes(NamedTuple):
    """The bytes that layers share: as they are now, and when they were last looked at."""

    now: torch.Tensor
    seen: torch.Tensor

    @classmethod
    def of(cls, storage: torch.UntypedStorage) -> "SharedBytes":
        """The bytes of a storage."""
        now = torch.tensor([], dtype=torch.uint8).set_(storage)
        return cls(now, now.clone())


class Shards(NamedTuple):
    """What the worker of a rank has of a layer, if the layer lies on `ranks` ranks of tensor
    parallelism: some of the KV `heads` of the model, or a part of each state."""

    rank: int = 0
    ranks: int = 1
    heads: int = 1

    def of(self, layer: str, spec: Any) -> str:
        """The layer, and which part of it the worker has. Ranks with the same heads have one."""
        if self.ranks == 1:
            return layer
        parts = min(self.heads, self.ranks) if attends(spec) else self.ranks
        return f"{layer}, part {self.rank * parts // self.ranks}"


ALONE = Shards()
"""The worker has all of each layer, or the layers of its tokens."""


class Caches:
    """The caches of one worker. `named` has vLLM's views by layer name, as a connector gets them
    (attention: `[blocks, heads, tokens of a block, values]`; Mamba: the pages of the states).
    `rank` is the worker's; `parts` says by layer name what it has of the layer."""

    def __init__(
        self, kv_cache_config: Any, layout: Any, numbers: Numbers, shards: Shards = ALONE
    ) -> None:
        self.numbers, self.rank = numbers, shards.rank
        self.parts: dict[str, str] = {}
        self.named: dict[str, Any] = allocated(kv_cache_config, layout)
        self.memory: dict[int, SharedBytes] = {}
        self.layers = []
        for index, group in enumerate(kv_cache_config.kv_cache_groups):
            for name in group.layer_names:
                self.parts[name] = shards.of(name, group.kv_cache_spec)
                now = slots(self.named[name], group.kv_cache_spec)
                storage = now.untyped_storage()
                memory = self.memory.setdefault(storage.data_ptr(), SharedBytes.of(storage))
                seen = torch.tensor([], dtype=torch.float32).set_(
                    memory.seen.untyped_storage(), now.storage_offset(), now.size(), now.stride()
                )
                self.layers.append(LayerCache(name, index, now, seen))

    def write(self, layer: LayerCache, block: int, offset: int, prefix: str) -> None:
        """Fill a slot with the number of a prefix."""
        layer.now[block, offset] = float(self.numbers.of(self.parts[layer.name], prefix))

    def bytes_of(self, layer: LayerCache, block: int) -> tuple[int, int]:
        """The addresses of the first and after the last byte of a block, or of its keys, where
        values lie apart."""
        held = layer.now[block]
        size = sum((n - 1) * s for n, s in zip(held.size(), held.stride(), strict=True)) + 1
        begin = held.data_ptr()
        if layer.now.stride(0) < size:  # keys of all blocks come before values
            size = layer.now.stride(0)
        return begin, begin + size * held.element_size()

    def found(self, layer: LayerCache, block: int, offset: int) -> str | None:
        """The prefix in a slot."""
        return self._prefix(layer.name, layer.now[block, offset])

    def _prefix(self, layer: str, values: torch.Tensor) -> str | None:
        flat = values.flatten()
        whole = bool((flat == flat[0]).all())
        number, own = float(flat[0]) if whole else NO_NUMBER, self.parts[layer]
        found = self.numbers.prefix(own, number)
        if found is None and own != layer:
            of_layer, prefix = self.numbers.home(number)
            if of_layer.startswith(f"{layer}, "):
                return ANOTHER_RANK + prefix
        return found

    def erase(self, blocks: Iterable[int]) -> None:
        """Zero these blocks in all layers."""
        for block in blocks:
            for layer in self.layers:
                layer.now[block] = 0.0

    def copy(self, source: int, target: int) -> None:
        """Copy a block in all layers."""
        for layer in self.layers:
            layer.now[target] = layer.now[source]

    def look(self) -> None:
        """Take the memory as it is for known: `changes` gives what differs from it."""
        for memory in self.memory.values():
            memory.seen.copy_(memory.now)

    def changes(self) -> Iterator[tuple[LayerCache, Slot, str | None]]:
        """The slots that changed since `look`, and what each held before."""
        if all(torch.equal(memory.seen, memory.now) for memory in self.memory.values()):
            return
        for layer in self.layers:
            # Bits are compared: a NaN is unlike itself.
            differs = layer.now.view(torch.int32) != layer.seen.view(torch.int32)
            places = differs.flatten(2).any(dim=2).nonzero().tolist()
            for block, offset in places:
                held = self._prefix(layer.name, layer.seen[block, offset])
                yield layer, Slot(layer.name, layer.group, block, offset), held
