"""The common part of the kit's fake stores: they keep bytes under keys, forget them, and fail. And
all memory behind a connector: these stores, and the files in its folder."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar
from zlib import crc32

from kvproof.model.facts.connectors import Stored
from kvproof.model.files.reading import read_bytes
from kvproof.model.plans.connector import Call, Fail

KV_FILES = {".bin", ".npy", ".pt", ".safetensors"}
"""The ends of the names of files that hold KV. Others may describe what lies beside them."""

ASKED, FAILED = "asked to fail: ", "failed: "
"""Under which a run counts the calls that were asked to fail, and those that did, of each kind."""

ANY = "call"
"""A call of any kind."""


def in_lost_part(content: bytes) -> bool:
    """Whether a memory that loses a part of its content loses this file or value, as about every
    second one. The content alone says so. Names may be hashes that are random in each process, and
    two vLLMs may have other names, other files beside these, and another order: what both have
    stored, both lose or both keep."""
    return crc32(content) % 2 == 0


class StoreClient:
    """A client of a store. Its next `failures` calls of one kind (`call`) fail, with an exception
    if it `raises`; of several values, only that at the place `value`, if it is given. `made` has
    all clients of this episode, which share one store; `sent` says for each value that one of them
    sent whether the store had its key, and `failed` how many calls of each kind failed. A client
    `is_open` from its connection on until it is closed, if the store has connections. `closes` says
    whether it has a connection to close."""

    closes: ClassVar[bool] = True
    made: ClassVar[list["StoreClient"]] = []
    sent: ClassVar[list[bool]] = []
    failed: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = self.made[0].kept if self.made else {}
        self.failures, self.raises, self.is_open = 0, False, False
        self.call: Call = ""
        self.value: int | None = None
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

    def fails(self, call: Call) -> bool:
        """Whether this call, of this kind, fails. Raises RuntimeError if failures are
        exceptions."""
        return bool(self.failing(call, 1))

    def failing(self, call: Call, values: int) -> range:
        """The places of those of so many values for which this call fails: all, one or none. Raises
        as `fails`."""
        if not self.failures or not values or self.call not in ("", call):
            return range(0)
        self.failures -= 1
        self.failed[call] += 1
        if self.raises:
            raise RuntimeError("the store does not answer")
        one = None if self.value is None else self.value % values
        return range(values) if one is None else range(one, one + 1)


class Memory:
    """The files in a folder, and the stores of this episode."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: Counter[str] = Counter()

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

    def fail(self, asked: Fail) -> None:
        """Let the next calls of each client fail."""
        self.asked[asked.call or ANY] += asked.times
        for store in StoreClient.made:
            store.failures, store.raises = asked.times, asked.raises
            store.call, store.value = asked.call, asked.value

    def told(self) -> Counter[str]:
        """How many failures of which calls were asked for, and how many calls failed."""
        told = {ASKED + call: n for call, n in self.asked.items()}
        return Counter({**told, **{FAILED + call: n for call, n in StoreClient.failed.items()}})
