"""The memory of the layers of an engine whose worker is in this process.

Each layer has views of its part of the KV cache, without the bytes that only pad a page. The first
dimension of a view counts blocks, or the kernel blocks that a block is split into.
"""

from collections.abc import Iterator
from typing import Any

import torch

from kvproof.watch.shape import Unknown


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
