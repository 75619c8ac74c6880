"""The memory that an episode allocates. A copy to or from another address would be an illegal
access on the device, and here it would spoil the process."""

import bisect
import ctypes
import mmap
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kvproof.connectors.device.clock import Clock

KEY = "allocations"

MS_ASYNC = 1

_MSYNC: Callable[..., int] = ctypes.CDLL(None).msync


class IllegalAccess(RuntimeError):
    """A copy reads or writes memory that was not allocated."""


class AllocatedBytes:
    """The allocated memory of an episode: the bytes of tensors by their first address. No call
    reports that memory is freed, so overlapping tensors count as one piece; rather too many bytes
    than too few count as allocated. `complete` is set once a copy lay wholly inside: from then on,
    all memory that this vLLM copies is known to be allocated by watched functions."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: dict[int, int] = {}
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
