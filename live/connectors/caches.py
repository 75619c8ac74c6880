"""The KV caches of a worker: real tensors, laid out by vLLM, with numbers in place of KV.

vLLM 0.32 has one function that allocates them. In older releases each tensor of the KV-cache config
has memory of its own, and the attention backend gives the shape (`_allocate_kv_cache`,
`_reshape_kv_cache`); Mamba layers are given the pages of their states, or in the oldest a list of
states.
"""

import importlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple
from zlib import crc32

import torch

from kvproof.live import adapt, build
from kvproof.live.contract.lookup import may_take
from kvproof.model.errors import AdapterDrift
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

    def is_changed(self) -> bool:
        """Whether a byte changed since `look`."""
        return not all(torch.equal(memory.seen, memory.now) for memory in self.memory.values())

    def changes(self) -> Iterator[tuple[LayerCache, Slot, str | None]]:
        """The slots that changed since `look`, each with the prefix that it held before."""
        for layer in self.layers:
            # Bits are compared: a NaN is unlike itself.
            differs = layer.now.view(torch.int32) != layer.seen.view(torch.int32)
            places = differs.flatten(2).any(dim=2).nonzero().tolist()
            for part, at in places:
                held = self._prefix(layer.name, layer.seen[part, at])
                yield layer, Slot(layer.name, layer.group, *layer.slot(part, at)), held


BLOCKS = 7
"""The number of blocks for which a shape is asked. No other dimension of that shape has this
size."""


@cache
def backend() -> Any:
    """An attention backend that runs on a CPU. Older releases have two. The one is chosen whose KV
    cache has keys and values in each block, as on GPUs, because connectors rely on that layout
    since vllm#44393. The other one has the keys of all blocks before all values or, for some time,
    keys and values in one dimension."""
    with suppress(AdapterDrift, ImportError):
        other = adapt.named("FlexAttentionBackend")
        if _shape(other)[:2] == (BLOCKS, 2):
            return other
    return adapt.named("CPUAttentionBackend")


def _shape(of: Any) -> tuple[int, ...]:
    """The shape of a KV cache of `BLOCKS` blocks; empty where no backend gives one."""
    shape = getattr(of, "get_kv_cache_shape", None)
    return tuple(shape(BLOCKS, 4, 1, 8)) if shape is not None else ()


def layout(vllm_config: Any) -> Any:
    """The order of the dimensions of a KV cache. In older releases it is the order that the
    connector needs (HND: heads come before tokens), or None."""
    resolved = getattr(vllm_config.cache_config, "get_resolved_kv_cache_layout", None)
    return resolved() if resolved is not None else build.required_layout(vllm_config)


def allocated(kv_cache_config: Any, order: Any, parts: int = 1) -> dict[str, Any]:
    """Allocate the KV cache of each layer, by name, on the CPU. A kernel may have blocks of its
    own, `parts` to an attention block, and the connector gets the kernel's blocks. Raises
    AdapterDrift where it gets whole blocks instead: where the layers of several groups share the
    bytes of a block, and in releases that allocate without the sizes of kernel blocks."""
    home = importlib.import_module("vllm.v1.worker.utils")
    if hasattr(home, "allocate_kv_cache"):
        allocate, named = home.allocate_kv_cache, {}
        if parts > 1:
            if not may_take(allocate, "kernel_block_sizes") or any(
                tensor.block_stride > tensor.layer_stride
                for tensor in kv_cache_config.kv_cache_tensors
            ):
                raise AdapterDrift("Here a connector gets whole blocks, not those of a kernel")
            specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
            sizes = [spec.block_size // parts ** attends(spec) for spec in specs]
            named["kernel_block_sizes"] = sizes
        made: dict[str, Any] = allocate(kv_cache_config, torch.device("cpu"), order, **named)
        return made
    raw: dict[str, torch.Tensor] = {}
    groups = kv_cache_config.kv_cache_groups
    backing: torch.Tensor | None = None  # of packed caches: a block of it has all layers
    for tensor in kv_cache_config.kv_cache_tensors:
        stride = getattr(tensor, "block_stride", 0)
        if stride:
            if parts > 1 or _shape(backend())[:1] != (BLOCKS,):
                raise AdapterDrift("This vLLM does not pack KV caches of such a layout")
            backing = torch.zeros(tensor.size, dtype=torch.int8) if backing is None else backing
            memory = backing.view(-1, stride)[:, tensor.offset :]
        else:
            memory = torch.zeros(tensor.size, dtype=torch.int8)
        raw.update(dict.fromkeys(tensor.shared_by, memory))
    states = any(not attends(of_layer(group, group.layer_names[0])) for group in groups)
    return {
        name: _view(raw[name], of_layer(group, name), states, parts, order)
        for group in kv_cache_config.kv_cache_groups
        for name in group.layer_names
    }


def of_layer(group: Any, name: str) -> Any:
    """The spec of a layer of a group (`UniformTypeKVCacheSpecs` has one for each)."""
    spec = group.kv_cache_spec
    return getattr(spec, "kv_cache_specs", {name: spec})[name]


def attends(spec: Any) -> bool:
    """Whether layers with this spec have attention, not states."""
    return hasattr(spec, "num_kv_heads")


def is_latent(spec: Any) -> bool:
    """Whether layers with this spec have latent attention (MLA)."""
    return any("MLA" in kind.__name__ for kind in type(spec).__mro__)


@cache
def latent_backend() -> Any:
    """A backend for latent attention (MLA): a block has one vector for each token."""
    return type("LatentBackend", (Latent, backend()), {})


class Latent:
    """The differences of a backend for latent attention."""

    @staticmethod
    def get_kv_cache_shape(
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_size: int,
        cache_dtype_str: str = "auto",
    ) -> tuple[int, ...]:
        """The shape of a KV cache. The names are those by which vLLM gives the sizes."""
        del num_kv_heads, cache_dtype_str
        return num_blocks, block_size, head_size


def _view(memory: torch.Tensor, spec: Any, by_page: bool, parts: int, order: str | None) -> Any:
    """A view of a layer's memory with its dimensions in this order; the view of a packed cache has
    a row for each block. The keys of all blocks come before the values, except with `by_page`,
    where layers with states use the same memory (`_update_hybrid_attention_mamba_layout`)."""
    if memory.dim() > 1:
        memory = memory[:, : spec.page_size_bytes]
    blocks = memory.numel() // spec.page_size_bytes
    if is_latent(spec):
        return memory.view(spec.dtype).view(blocks * parts, -1, spec.head_size)
    if attends(spec):
        shape = backend().get_kv_cache_shape(
            blocks * parts, spec.block_size // parts, spec.num_kv_heads, spec.head_size
        )
        held = memory.view(spec.dtype)
        if order == "HND" and _shape(backend())[:2] == (BLOCKS, 2):
            view = held.view(*shape[:2], shape[3], shape[2], *shape[4:]).transpose(2, 3)
        else:
            view = held.view(shape)
        if by_page and _shape(backend())[:1] == (2,):
            half = view[0, 0].numel()
            view = view.as_strided(shape, (half, 2 * half, *view.stride()[2:]))
        return view
    if hasattr(adapt.named("MambaBase"), "bind_kv_cache"):
        return memory.view(blocks, 1, 1, spec.page_size_bytes)
    states, offset = [], 0
    for shape, dtype in zip(spec.shapes, spec.dtypes, strict=True):
        pages = memory.view(dtype).view(blocks, -1)
        count = torch.Size(shape).numel()
        states.append(pages[:, offset : offset + count].unflatten(1, shape))
        offset += count
    return states


def slots(view: Any, spec: Any) -> torch.Tensor:
    """A view of the same bytes as `[blocks, slots of a block, ...]` of float32. It is given as
    `[blocks, heads, slots, values]`, in older releases as `[2, blocks, heads, slots, values]` or
    `[blocks, 2, slots, heads, values]`, of latent attention as `[blocks, slots, values]`; of Mamba
    as pages, in older releases as a list of states, which follow each other in a page. A page may
    be wider than its states: the rest of the page is unused, and a connector need not copy it."""
    if not attends(spec):
        size = sum(torch.Size(shape).numel() for shape in spec.shapes)
        if isinstance(view, list):
            return view[0].as_strided((len(view[0]), 1, size), (view[0].stride(0), size, 1))
        return view.view(torch.float32).flatten(1).unsqueeze(1)[..., :size]
    if view.dtype != torch.float32:
        view = view.view(torch.float32)
    if view.dim() == 3:
        return view.unsqueeze(2)
    if view.dim() == 4:
        return view.transpose(1, 2)
    keys_first = _shape(backend())[:1] == (2,)
    return view.permute(1, 3, 0, 2, 4) if keys_first else view.transpose(1, 2)


NUMBERS_MAX = 2**24
"""A float32 holds each whole number below this one exactly."""


class Numbers:
    """One number for each pair of a layer and a prefix, from 1 on; 0 is memory that no step wrote.

    The number follows from the pair: it is the same in each episode and in each process, so that a
    copy keeps its meaning wherever it goes, also in a store that outlives its engine. Only where
    two pairs would have one number, the second one that comes has the next one.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._homes: dict[int, tuple[str, str]] = {}

    def of(self, layer: str, prefix: str) -> int:
        """The number of this prefix in this layer."""
        key = layer, prefix
        number = self._numbers.get(key)
        if number is None:
            text = "\n".join(key).encode("utf-8", "surrogatepass")  # a token may be any number
            number = self._numbers[key] = self._free(crc32(text))
            self._homes[number] = key
        return number

    def _free(self, wanted: int) -> int:
        """The first number from `wanted` on that is not used yet."""
        if len(self._homes) == NUMBERS_MAX - 1:
            raise OverflowError(f"a process has more than {NUMBERS_MAX} prefixes")
        number = wanted % (NUMBERS_MAX - 1) + 1
        while number in self._homes:
            number = number % (NUMBERS_MAX - 1) + 1
        return number

    def home(self, number: float) -> tuple[str, str]:
        """The layer and the prefix of a number; empty texts for content that no step computed."""
        whole = int(number) if number == number and abs(number) < NUMBERS_MAX else 0
        return self._homes.get(whole, ("", "")) if whole == number else ("", "")

    def prefix(self, layer: str, number: float) -> str | None:
        """The prefix of a number in a layer. None for content that no step computed for this layer:
        empty memory, half a copy, or the content of another layer."""
        of_layer, prefix = self.home(number)
        return prefix if of_layer == layer else None


NUMBERS = Numbers()
"""The numbers of all engines and stores of this process."""
