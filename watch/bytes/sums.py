"""Checksums of blocks, computed on the device that has them.

A block's words of 64 bits are multiplied by odd weights and added up, and so are its layers. So a
change of one word always changes the sum, and any other change does so but by a rare chance.

The memory is that of the layers of an engine whose worker is in this process. Each layer has views
of its part of the KV cache, without the bytes that only pad a page. The first dimension of a view
counts blocks, or the kernel blocks that a block is split into.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch

from kvproof.watch.shape import Unknown

BYTES_MAX = 32 << 20
"""The number of bytes of one layer that are copied at a time."""

FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)
WORDS = (torch.int64, torch.int32, torch.int16, torch.uint8)
BY_SIZE = {each.itemsize: each for each in WORDS}


@cache
def _weights(count: int, device: torch.device) -> torch.Tensor:
    """Return odd numbers without a pattern, of 64 bits."""
    mixed = torch.arange(1, count + 1, dtype=torch.int64, device=device) * FACTOR
    mixed = (mixed ^ (mixed >> 29)) * FACTOR
    return (mixed ^ (mixed >> 32)) | 1


def _words(rows: torch.Tensor) -> torch.Tensor:
    """Return rows of memory as rows of integers of 64 bits."""
    flat = rows.reshape(rows.shape[0], -1).view(torch.uint8)
    word = next(each for each in WORDS if flat.shape[1] % each.itemsize == 0)
    return flat.view(word).to(torch.int64)


def _of_layer(view: torch.Tensor, blocks: torch.Tensor) -> Iterator[torch.Tensor]:
    plain = view.view(BY_SIZE[view.element_size()])  # not every type of a cache can be selected
    size = view[0].numel() * view.element_size()
    for some in blocks.split(max(BYTES_MAX // size, 1)):
        words = _words(plain.index_select(0, some))
        yield (words * _weights(words.shape[1], words.device)).sum(1)


class Sums:
    """The sums of some blocks over the views of the layers of a group. On CUDA they are computed
    behind all that the device was given before, and are waited for in `result`."""

    def __init__(self, views: Sequence[torch.Tensor], blocks: Sequence[int]) -> None:
        device = views[0].device
        cuda = device.type == "cuda"
        with torch.inference_mode():
            chosen = torch.tensor(blocks, pin_memory=cuda).to(device, non_blocking=True)
            total = torch.zeros(len(blocks), dtype=torch.int64, device=device)
            for view in views:
                total = total * FACTOR + torch.cat(list(_of_layer(view, chosen)))
            self._values = torch.empty(len(blocks), dtype=torch.int64, pin_memory=cuda)
            self._values.copy_(total, non_blocking=cuda)
        self._event = None
        if cuda:
            self._event = torch.cuda.Event()
            self._event.record()

    def ready(self) -> bool:
        """Whether the sums are computed."""
        return self._event is None or self._event.query()

    def result(self) -> list[int]:
        """Return the sums, in the order of the blocks."""
        if self._event is not None:
            self._event.synchronize()
        found: list[int] = self._values.tolist()
        return found


class Layers:
    """The layers by cache group. Raises Unknown where their memory is not known."""

    def __init__(self, scheduler: Any) -> None:
        config = scheduler.kv_cache_config
        compiled = scheduler.vllm_config.compilation_config
        self._layers: dict[str, Any] = getattr(compiled, "static_forward_context", {})
        self.names = [list(group.layer_names) for group in config.kv_cache_groups]
        self.num_blocks = len(scheduler.kv_cache_manager.block_pool.blocks)
        for group in range(len(self.names)):
            self.of(group)

    def of(self, group: int) -> list[torch.Tensor]:
        """Return the views of the layers of a group. They are not kept, because they would keep the
        memory of an engine that has ended."""
        return [view for name in self.names[group] for view in self._views(name)]

    def _views(self, name: str) -> Iterator[torch.Tensor]:
        held = getattr(self._layers.get(name), "kv_cache", None)
        for view in held if isinstance(held, list | tuple) else (held,):
            if not isinstance(view, torch.Tensor) or not view.numel():
                raise Unknown(f"the memory of the layer {name} is not in this process")
            if view.shape[0] % self.num_blocks:
                shape = tuple(view.shape)
                raise Unknown(f"the layer {name} has memory of the shape {shape}")
            yield view.unflatten(0, (self.num_blocks, -1))

    def form(self, group: int) -> str:
        """Return the shape and type of the layers of a group. Two engines must have the same form
        for their sums of a block to be comparable."""
        views = self.of(group)
        forms = dict.fromkeys((tuple(view.shape[1:]), str(view.dtype)) for view in views)
        return f"{len(views)} x {list(forms)}"

    def backends(self) -> set[str]:
        """Return the names of the attention backends."""
        names = (name for group in self.names for name in group)
        layers = (self._layers[name] for name in names)
        return {layer.get_attn_backend().get_name() for layer in layers}
