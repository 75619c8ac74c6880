"""The calls of vLLM that copy between a device and its host, as work of a stream."""

import ctypes
from typing import Any, NamedTuple

import torch

from kvproof.connectors.device.streams import Stream


def swap_blocks_batch(
    src_ptrs: torch.Tensor, dst_ptrs: torch.Tensor, sizes: torch.Tensor, **_: object
) -> None:
    """Copy bytes between addresses (`vllm._custom_ops.swap_blocks_batch`)."""
    moves = list(zip(dst_ptrs.tolist(), src_ptrs.tolist(), sizes.tolist(), strict=True))

    def copy() -> None:
        for target, source, size in moves:
            ctypes.memmove(target, source, size)

    Stream.current.add(copy)


def swap_blocks(
    src: torch.Tensor, dst: torch.Tensor, block_size_in_bytes: int, block_mapping: torch.Tensor
) -> None:
    """Copy blocks between two tensors (`vllm._custom_ops.swap_blocks`)."""
    pairs = block_mapping.tolist()
    source, target = (each.view(torch.uint8).view(-1, block_size_in_bytes) for each in (src, dst))

    def copy() -> None:
        for one, other in pairs:
            target[other] = source[one]

    Stream.current.add(copy)


class CopyTensors(NamedTuple):
    """The tensors of a copy in one direction, and its stream."""

    source: list[torch.Tensor]
    target: list[torch.Tensor]
    stream: Stream


def build_params(
    src_caches: dict[str, Any], dst_caches: dict[str, Any], stream: Stream, **_: object
) -> CopyTensors:
    """Prepare copies of blocks (`simple_kv_offload.cuda_mem_ops.build_params`)."""
    return CopyTensors(list(src_caches.values()), list(dst_caches.values()), stream)


def copy_blocks(src_block_ids: list[int], dst_block_ids: list[int], params: CopyTensors) -> None:
    """Copy blocks of all tensors (`simple_kv_offload.cuda_mem_ops.copy_blocks`)."""
    source, target = list(src_block_ids), list(dst_block_ids)

    def copy() -> None:
        for one, other in zip(params.source, params.target, strict=True):
            other[target] = one[source]

    params.stream.add(copy)
