"""A fake of a Mooncake store (`mooncake.store`), in memory: it keeps values under their keys."""

import ctypes
from collections.abc import Sequence
from types import ModuleType

from kvproof.connectors.device.store_client import StoreClient

FAILED = -800
"""Mooncake's answer if a transfer fails (`TRANSFER_FAIL`)."""

GONE = -704
"""Mooncake's answer for a key that it does not have (`OBJECT_NOT_FOUND`)."""


class Store(StoreClient):
    """A client of the store. It reads and writes memory by address, as Mooncake does."""

    def setup(self, *_: object, **__: object) -> int:
        """Connect to the store. Returns 0 for success."""
        self.is_open = True
        return 0

    def register_buffer(self, _address: int, _size: int) -> int:
        """Register memory with the network card; this has no effect."""
        return 0

    def batch_is_exist(self, keys: Sequence[str]) -> list[int]:
        """Return 1 for each key that the store has, 0 for any other."""
        if self.fails():
            return [FAILED] * len(keys)
        return [int(key in self.kept) for key in keys]

    def batch_put_from_multi_buffers(
        self,
        keys: Sequence[str],
        addresses: Sequence[Sequence[int]],
        sizes: Sequence[Sequence[int]],
        *_: object,
    ) -> list[int]:
        """Store the memory at these addresses under each key that the store does not have yet.
        Returns 0 for each stored key."""
        if self.fails():
            return [FAILED] * len(keys)
        for key, where, counts in zip(keys, addresses, sizes, strict=True):
            if key not in self.kept:
                parts = zip(where, counts, strict=True)
                self.kept[key] = b"".join(ctypes.string_at(at, size) for at, size in parts)
        return [0] * len(keys)

    def batch_get_into_multi_buffers(
        self,
        keys: Sequence[str],
        addresses: Sequence[Sequence[int]],
        sizes: Sequence[Sequence[int]],
    ) -> list[int]:
        """Fill memory from the value of each key. Returns the number of bytes of each, or
        `GONE`."""
        if self.fails():
            return [FAILED] * len(keys)
        return [
            self._fill(self.kept.get(key), where, counts)
            for key, where, counts in zip(keys, addresses, sizes, strict=True)
        ]

    def _fill(self, kept: bytes | None, where: Sequence[int], counts: Sequence[int]) -> int:
        if kept is None or len(kept) != sum(counts):
            return GONE
        begin = 0
        for at, size in zip(where, counts, strict=True):
            ctypes.memmove(at, kept[begin : begin + size], size)
            begin += size
        return begin

    def remove_all(self, force: bool = False) -> int:  # noqa: ARG002
        """Remove all values."""
        self.kept.clear()
        return 0

    def close(self) -> None:
        """Disconnect."""
        self.is_open = False


class ReplicateConfig:
    """The number of copies of a value; here it is always one."""

    group_ids: list[str]


def module() -> ModuleType:
    """Make the module that replaces `mooncake.store`."""
    made = ModuleType("mooncake.store")
    made.__dict__.update(MooncakeDistributedStore=Store, ReplicateConfig=ReplicateConfig)
    return made
