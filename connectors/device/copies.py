"""The calls of vLLM that copy between a device and its host, as work of a stream."""

import ctypes
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch

from kvproof.connectors.device.allocations import AllocatedBytes
from kvproof.connectors.device.streams import Stream

_EMPTY_LIKE = torch.empty_like


def empty_like(like: torch.Tensor, *, pin_memory: bool = False, **more: Any) -> torch.Tensor:
    """Allocate memory of the host (`torch.empty_like`). Without a device, it is never pinned."""
    del pin_memory
    return _EMPTY_LIKE(like, **more).zero_()


def _reads(by: str, stream: Stream, parts: Iterable[tuple[int, int]]) -> None:
    """Record that the next work of a stream reads these parts of the memory; a part is an address
    and a number of bytes."""
    place = stream.added + 1
    for address, size in parts:
        stream.clock.order.read(by, address, size, stream.after, lambda: stream.waited >= place)


def _rows(tensor: torch.Tensor, rows: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The address and the number of bytes of each of these rows of a tensor."""
    size = tensor.stride(0) * tensor.element_size()
    return ((tensor.data_ptr() + row * size, size) for row in rows)


def swap_blocks_batch(
    src_ptrs: torch.Tensor, dst_ptrs: torch.Tensor, sizes: torch.Tensor, **_: object
) -> None:
    """Copy bytes between addresses (`vllm._custom_ops.swap_blocks_batch`)."""
    moves = list(zip(dst_ptrs.tolist(), src_ptrs.tolist(), sizes.tolist(), strict=True))

    _reads("swap_blocks_batch", Stream.current, ((at, size) for _, at, size in moves))

    def copy() -> None:
        AllocatedBytes.of(Stream.clock).check(moves)
        for target, source, size in moves:
            ctypes.memmove(target, source, size)

    Stream.current.add(copy)


def swap_blocks(
    src: torch.Tensor, dst: torch.Tensor, block_size_in_bytes: int, block_mapping: torch.Tensor
) -> None:
    """Copy blocks between two tensors (`vllm._custom_ops.swap_blocks`)."""
    pairs = block_mapping.tolist()
    source, target = (each.view(torch.uint8).view(-1, block_size_in_bytes) for each in (src, dst))

    _reads("swap_blocks", Stream.current, _rows(source, (one for one, _ in pairs)))

    def copy() -> None:
        for one, other in pairs:
            target[other] = source[one]

    Stream.current.add(copy)


def copy_rows(
    src: torch.Tensor, dst: torch.Tensor, src_rows: torch.Tensor, dst_rows: torch.Tensor
) -> None:
    """Copy blocks between two tensors at once (`Platform.insert_blocks_to_device` and
    `swap_out_blocks_to_host`)."""
    dst[dst_rows] = src[src_rows]


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
    for one in params.source:
        _reads("copy_blocks", params.stream, _rows(one, source))

    def copy() -> None:
        for one, other in zip(params.source, params.target, strict=True):
            other[target] = one[source]

    params.stream.add(copy)
