"""The memory of a worker's KV caches, as vLLM's worker allocates it.

vLLM 0.32 has one function for it. In older releases each tensor of the KV-cache config has memory
of its own, and the attention backend gives the shape (`_allocate_kv_cache`, `_reshape_kv_cache`);
Mamba layers are given the pages of their states, or in the oldest a list of states.
"""

import importlib
from contextlib import suppress
from functools import cache
from typing import Any

import torch

from kvproof.live import adapt, build
from kvproof.live.contract.lookup import may_take
from kvproof.model.errors import AdapterDrift

BACKEND = "vllm.v1.attention.backends.cpu_attn:CPUAttentionBackend"

OTHER_BACKEND = "vllm.v1.attention.backends.flex_attention:FlexAttentionBackend"
"""Another attention backend that runs on a CPU."""

BLOCKS = 7
"""The number of blocks for which a shape is asked. No other dimension of that shape has this
size."""

MAMBA = "vllm.model_executor.layers.mamba.abstract:MambaBase"


@cache
def backend() -> Any:
    """An attention backend that runs on a CPU. Older releases have two. The one is chosen whose KV
    cache has keys and values in each block, as on GPUs, because connectors rely on that layout
    since vllm#44393. The other one has the keys of all blocks before all values or, for some time,
    keys and values in one dimension."""
    with suppress(AdapterDrift, ImportError):
        other = adapt.first([OTHER_BACKEND])
        if _shape(other)[:2] == (BLOCKS, 2):
            return other
    return adapt.first([BACKEND])


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
    if hasattr(adapt.first([MAMBA]), "bind_kv_cache"):
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
