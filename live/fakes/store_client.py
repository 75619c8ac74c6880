"""The common part of the kit's fake stores: they keep bytes under keys, forget them, and fail. And
all memory behind a connector: these stores, and the files in its folder."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar
from zlib import crc32

from kvproof.model.facts.connectors import Stored
from kvproof.model.files.reading import read_bytes

KV_FILES = {".bin", ".npy", ".pt", ".safetensors"}
"""The ends of the names of files that hold KV. Others may describe what lies beside them."""


def in_lost_part(content: bytes) -> bool:
    """Whether a memory that loses a part of its content loses this file or value, as about every
    second one. The content alone says so. Names may be hashes that are random in each process, and
    two vLLMs may have other names, other files beside these, and another order: what both have
    stored, both lose or both keep."""
    return crc32(content) % 2 == 0


class StoreClient:
    """A client of a store. Its next `failures` calls fail, with an exception if it `raises`. `made`
    has all clients of this episode, which share one store; `sent` says for each value that one of
    them sent whether the store had its key. A client `is_open` from its connection
    on until it is closed, if the store has connections. `closes` says whether it has a connection
    to close."""

    closes: ClassVar[bool] = True
    made: ClassVar[list["StoreClient"]] = []
    sent: ClassVar[list[bool]] = []

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = self.made[0].kept if self.made else {}
        self.failures, self.raises, self.is_open = 0, False, False
        self.made.append(self)

    def note(self, key: str) -> None:
        """Record that the store is sent a value with this key."""
        self.sent.append(key in self.kept)

    @classmethod
    def take_stored(cls) -> Iterator[Stored]:
        """The fact about the values that clients have sent since the last call, if there are
        any."""
        if cls.sent:
            yield Stored(len(cls.sent), sum(cls.sent))
            cls.sent.clear()

    def forget(self, part: bool) -> None:
        """Remove all values from the store, or a part of them."""
        for key, value in [*self.kept.items()]:
            if not part or in_lost_part(value):
                del self.kept[key]

    def fails(self) -> bool:
        """Whether this call fails. Raises RuntimeError if failures are exceptions."""
        if not self.failures:
            return False
        self.failures -= 1
        if self.raises:
            raise RuntimeError("the store does not answer")
        return True


class Memory:
    """The files in a folder, and the stores of this episode."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def forget(self, part: bool) -> None:
        """Remove all content, or a part of the files that hold KV and of the values."""
        if part:
            files = (path for path in self.folder.rglob("*") if path.suffix in KV_FILES)
            for path in [each for each in files if each.is_file()]:
                if in_lost_part(read_bytes(path, "file of a store")):
                    path.unlink()
        else:
            for path in self.folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        for store in StoreClient.made[: 1 if part else None]:  # they share what they keep
            store.forget(part)

    def fail(self, times: int, raises: bool) -> None:
        """Let the next calls fail; with an exception if `raises`."""
        for store in StoreClient.made:
            store.failures, store.raises = times, raises
