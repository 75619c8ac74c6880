"""The calls of vLLM that copy between a device and its host, as work of a stream; and the memory
that an episode allocates. A copy to or from another address would be an illegal access on the
device, and here it would spoil the process."""

import bisect
import ctypes
import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from kvproof.live.fakes.clock import Clock
from kvproof.live.fakes.streams import Stream

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


KEY = "allocations"

MS_ASYNC = 1

_MSYNC: Callable[..., int] = ctypes.CDLL(None).msync


class IllegalAccess(RuntimeError):
    """A copy reads or writes memory that was not allocated."""


class AllocatedBytes:
    """The allocated memory of an episode: the bytes of tensors by their first address. Memory of
    torch stays until the episode ends: an engine that ends may free it before its last copies are
    made, and these would spoil the process. No call reports that memory is freed, so overlapping
    tensors count as one piece; rather too many bytes than too few count as allocated. `complete` is
    set once a copy lay wholly inside: from then on, all memory that this vLLM copies is known to be
    allocated by watched functions."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: dict[int, int] = {}
        self._kept: list[torch.UntypedStorage] = []
        self.complete = False

    @classmethod
    def of(cls, clock: Clock) -> "AllocatedBytes":
        """The allocated memory of the episode with this clock."""
        found: AllocatedBytes = clock.shared.setdefault(KEY, cls())
        return found

    def note(self, tensor: torch.Tensor) -> None:
        """Record the memory of a tensor."""
        storage = tensor.untyped_storage()
        begin, end = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
        if not begin or begin == end:  # it has none
            return
        if storage.resizable():  # it is torch's own
            self._kept.append(storage)
        first = bisect.bisect_left(self._begins, begin)
        if first and self._ends[self._begins[first - 1]] > begin:
            first -= 1
        behind = bisect.bisect_left(self._begins, end)
        for known in self._begins[first:behind]:
            begin, end = min(begin, known), max(end, self._ends.pop(known))
        self._begins[first:behind] = [begin]
        self._ends[begin] = end

    def holds(self, address: int, size: int) -> bool:
        """Whether these bytes lie in one piece."""
        place = bisect.bisect_right(self._begins, address) - 1
        return place >= 0 and address + size <= self._ends[self._begins[place]]

    def check(self, moves: Sequence[tuple[int, int, int]]) -> None:
        """Check the target and source addresses of copies, and their numbers of bytes. Raises
        IllegalAccess if a copy is outside allocated memory, also where the process no longer has
        the memory. If no address on one side is known, this vLLM allocates that memory in another
        way, and that side is not checked."""
        strange = False
        for side in (0, 1):
            outside = sum(not self.holds(move[side], move[2]) for move in moves)
            if outside and (self.complete or outside < len(moves)):
                raise IllegalAccess(
                    f"an illegal memory access: {outside} of {len(moves)} parts of a copy lie "
                    "outside of all memory that was allocated"
                )
            strange = strange or outside > 0
        self.complete = self.complete or not strange
        for *addresses, size in moves:
            if not all(_is_mapped(address, size) for address in addresses):
                raise IllegalAccess(
                    "an illegal memory access: a copy reads or writes memory that was given back"
                )


def _is_mapped(address: int, size: int) -> bool:
    """Whether the process has this memory; the operating system is asked, page by page."""
    first = address // mmap.PAGESIZE * mmap.PAGESIZE
    end = ctypes.c_size_t(address + size - first)
    return _MSYNC(ctypes.c_void_p(first), end, MS_ASYNC) == 0


def watched(name: str) -> Callable[[Clock], Any]:
    """Wrap a function of torch that allocates memory, so that the memory is recorded. The new
    memory is emptied: its old content, perhaps the KV of an earlier episode, could make a copy look
    right that was never made."""
    original = getattr(torch, name)

    def made(clock: Clock) -> Any:
        def allocate(*given: Any, **named: Any) -> torch.Tensor:
            tensor: torch.Tensor = original(*given, **named)
            if name == "empty":
                tensor.zero_()
            AllocatedBytes.of(clock).note(tensor)
            return tensor

        return allocate

    return made
