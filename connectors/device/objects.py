"""An object store in memory, behind an agent of NIXL (its backend `OBJ`): an object is kept under
its key, and a copy between memory and objects is made at the moment that the kit chooses.

What vLLM asks of this backend is in `vllm/v1/kv_offload/tiering/obj`. A copy that fails ends with
the state `ERR`; what ends a copy may raise instead.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

from kvproof.connectors.device.clock import Clock
from kvproof.connectors.device.nixl import CopyingAgent, PostedTransfer
from kvproof.connectors.device.store_client import StoreClient

Object = tuple[str, int, int]
"""A key, a number of bytes, a device: in place of an address of memory."""


class Registered(list[Any]):
    """What `register_memory` gives back."""

    def trim(self) -> "Registered":
        """The same, to be copied."""
        return self


class ObjectAgent(CopyingAgent):
    """An agent whose other side is an object store."""

    def __init__(self, clock: Clock, name: str) -> None:
        super().__init__(clock, name)
        self.store = StoreClient()

    def query_memory(self, pieces: Sequence[Any], *_: object) -> list[dict[str, str] | None]:
        """Something for each object that is kept, else None."""
        return [{} if piece[3] in self.store.kept else None for piece in pieces]

    def register_memory(self, pieces: Any, kind: str = "DRAM", **_: object) -> Registered:
        """Name memory or objects that will be copied."""
        if kind == "DRAM":
            super().register_memory(pieces)
            return Registered(pieces)
        return Registered((key, size, device) for _, size, device, key in pieces)

    def prep_xfer_dlist(self, agent: str, pieces: Any, *_: object, **__: object) -> int:
        """Prepare memory, or objects."""
        if not isinstance(pieces, Registered):
            return super().prep_xfer_dlist(agent, pieces)
        self.lists[number := self._number()] = agent, list(pieces)
        return number

    def _carry_out(self, begun: PostedTransfer) -> None:
        if begun.done or self.clock.over:
            return
        begun.done = True
        for target, source in begun.moves:
            if isinstance(target[0], str):
                self.store.kept[target[0]] = ctypes.string_at(source[0], source[1])
            elif (found := self.store.kept.get(source[0])) is None:
                begun.failed = True
            else:
                ctypes.memmove(target[0], found, target[1])

    def transfer(self, number: int, *_: object) -> str:
        """Begin a copy."""
        if not self.store.raises and self.store.fails():
            return "ERR"
        return super().transfer(number)

    def check_xfer_state(self, number: int) -> str:
        """Whether a copy is done, or has failed."""
        if self.store.fails():
            return "ERR"
        return super().check_xfer_state(number)

    def release_xfer_handle(self, number: int) -> None:
        """The end of a copy."""
        self._may_raise()
        super().release_xfer_handle(number)

    def release_dlist_handle(self, number: int) -> None:
        """The end of `prep_xfer_dlist`."""
        self._may_raise()
        super().release_dlist_handle(number)

    def deregister_memory(self, _pieces: Any) -> None:
        """The end of `register_memory`."""
        self._may_raise()

    def _may_raise(self) -> None:
        if self.store.raises:
            self.store.fails()


def agents(clock: Clock) -> Any:
    """In place of the class of NIXL's agents."""
    return lambda name, *_, **__: ObjectAgent(clock, name)
