"""A fake of an object store behind a NIXL agent (its backend `OBJ`), in memory. It keeps an object
under its key, and copies between memory and objects at the moment that the kit chooses.

vLLM uses this backend in `vllm/v1/kv_offload/tiering/obj`. A copy that fails ends with the state
`ERR`, or the call that asks for its state raises.
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
    """The result of `register_memory`."""

    def trim(self) -> "Registered":
        """The same object, as the source or target of a copy."""
        return self


class ObjectAgent(CopyingAgent):
    """A fake NIXL agent whose other side is an object store."""

    def __init__(self, clock: Clock, name: str) -> None:
        super().__init__(clock, name)
        self.store = StoreClient()

    def query_memory(self, pieces: Sequence[Any], *_: object) -> list[dict[str, str] | None]:
        """An answer for each object that the store has, None for any other."""
        return [{} if piece[3] in self.store.kept else None for piece in pieces]

    def register_memory(self, pieces: Any, kind: str = "DRAM", **_: object) -> Registered:
        """Register memory or objects that will be copied."""
        if kind == "DRAM":
            super().register_memory(pieces)
            return Registered(pieces)
        return Registered((key, size, device) for _, size, device, key in pieces)

    def prep_xfer_dlist(self, agent: str, pieces: Any, *_: object, **__: object) -> int:
        """Prepare memory or objects for copies."""
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
        """Start a copy."""
        if not self.store.raises and self.store.fails():
            return "ERR"
        return super().transfer(number)

    def check_xfer_state(self, number: int) -> str:
        """The state of a copy: in progress, done or failed."""
        if self.store.fails():
            return "ERR"
        return super().check_xfer_state(number)

    def release_xfer_handle(self, number: int) -> None:
        """Release the handle of a copy."""
        self._may_raise()
        super().release_xfer_handle(number)

    def release_dlist_handle(self, number: int) -> None:
        """Undo `prep_xfer_dlist`."""
        self._may_raise()
        super().release_dlist_handle(number)

    def deregister_memory(self, _pieces: Any) -> None:
        """Undo `register_memory`."""
        self._may_raise()

    def _may_raise(self) -> None:
        if self.store.raises:
            self.store.fails()


def agents(clock: Clock) -> Any:
    """Make the class that replaces NIXL's class of agents."""
    return lambda name, *_, **__: ObjectAgent(clock, name)
