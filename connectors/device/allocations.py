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
    """A copy reads or writes memory that nobody has allocated."""


class AllocatedBytes:
    """The bytes of tensors by their first address. Nobody says when memory is given back, so what
    overlaps is one piece: bytes count as allocated rather than not. `complete` once a copy was
    wholly inside: then all that this vLLM copies is allocated by functions that are watched."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: dict[int, int] = {}
        self.complete = False

    @classmethod
    def of(cls, clock: Clock) -> "AllocatedBytes":
        """Those of an episode."""
        found: AllocatedBytes = clock.shared.setdefault(KEY, cls())
        return found

    def note(self, tensor: torch.Tensor) -> None:
        """Note the memory of a tensor."""
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
        """Whether these bytes are of one piece."""
        place = bisect.bisect_right(self._begins, address) - 1
        return place >= 0 and address + size <= self._ends[self._begins[place]]

    def check(self, moves: Sequence[tuple[int, int, int]]) -> None:
        """Check a copy: the addresses to and from which it goes, and the bytes. Raises
        IllegalAccess, also where the process has the memory no more. Where none of the addresses on
        a side is known, this vLLM allocates that memory in another way."""
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
    """Whether the process has this memory: the system answers for pages."""
    first = address // mmap.PAGESIZE * mmap.PAGESIZE
    end = ctypes.c_size_t(address + size - first)
    return _MSYNC(ctypes.c_void_p(first), end, MS_ASYNC) == 0


def watched(name: str) -> Callable[[Clock], Any]:
    """A function of torch that allocates memory, which is noted. New memory holds nothing: what was
    there before, perhaps the KV of an earlier episode, would make a copy look right that is not
    made."""
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
