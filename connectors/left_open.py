"""Resources that a connector has open outside its engine: files in shared memory, and clients of
stores."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from kvproof.connectors.device.store_client import StoreClient
from kvproof.model.facts.connectors import LeftOpen

MAPPED = Path("/proc/self/maps")
"""The files that this process has mapped, on Linux."""

SHARED = "/dev/shm/"
GONE = " (deleted)"
"""The end of the line about a mapped file whose name was removed."""


def shared_memory() -> frozenset[str]:
    """The named files in shared memory that this process has mapped."""
    if not MAPPED.exists():
        return frozenset()
    lines = MAPPED.read_text("utf-8").splitlines()
    paths = (SHARED + line.partition(SHARED)[2] for line in lines if SHARED in line)
    return frozenset(path for path in paths if not path.endswith(GONE))


def names() -> frozenset[str]:
    """The files that exist in shared memory now, with their folders."""
    walk = os.walk(SHARED)
    return frozenset(os.path.join(folder, name) for folder, _, files in walk for name in files)


class Opened:
    """The resources that are opened from now on, until `note`."""

    def __init__(self) -> None:
        self._names, self._clients = names(), len(StoreClient.made)
        self.files: frozenset[str] = frozenset()
        self.clients: list[StoreClient] = []

    def note(self) -> None:
        """Record the resources that were opened. Those that are opened later belong to others."""
        new = names() - self._names  # reading what is mapped takes far longer
        self.files = frozenset(path for path in shared_memory() if path in new) if new else new
        self.clients = [each for each in StoreClient.made[self._clients :] if each.closes]

    def remove(self) -> None:
        """Remove the names of the files: their memory is freed when no process has it mapped any
        more."""
        for each in self.files:
            Path(each).unlink(missing_ok=True)

    def left(self) -> Iterator[LeftOpen]:
        """The resources that still exist or are still open."""
        yield from _each("files in shared memory", (Path(each).exists() for each in self.files))
        yield from _each("clients of a store", (each.is_open for each in self.clients))


def _each(what: str, still: Iterable[bool]) -> Iterator[LeftOpen]:
    if number := sum(still):
        yield LeftOpen(what, number)
