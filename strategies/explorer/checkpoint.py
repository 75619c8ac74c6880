"""A search as a file, so that it can continue after it was stopped or killed.

The file is a head of fixed size (what it is, version of the format, length of the rest, checksum of
all) and MessagePack data, which is decoded into declared types. Nothing in a file is ever executed.
Each write replaces the whole file, so the file is never incomplete.

A file with an error of the disk or of a transfer is refused: the checksum shows it. A file that
somebody made on purpose cannot run code, and its memory is limited by its size, but its verdict can
be false. So do not resume from a file whose verdict you would not trust.
"""

import hashlib
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

import kvproof
from kvproof.model.config import Cluster, config_json
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import MIB, opened, shown
from kvproof.model.files.writing import replace, write_new
from kvproof.model.planting import planted_now
from kvproof.strategies.explorer.saved_graph import Broken

MAGIC = b"kvproof-checkpoint\n\0"

VERSION = 2
"""The version of the format. Another version is refused."""

HEAD = struct.Struct(f">{len(MAGIC)}sIQ")
"""The head without the checksum: the magic bytes, the version, and the length of the data."""

CHECKSUM_BYTES = 32

SIZE_MAX_MIB = 2048
"""The largest file that is read: about 30 million states."""

Saved = TypeVar("Saved", bound=msgspec.Struct)

MODEL = "model"

PICKLE = b"\x80"
"""The first byte of a checkpoint of kvproof before format 1."""


class Scope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The inputs of a search. A search accepts only a checkpoint with the same scope. `replaced`
    names each function that a fault replaced, and the module of the fault. `machine` is the model,
    or names a real vLLM."""

    kvproof: str
    config: str
    replaced: tuple[str, ...] = msgspec.field(name="rules")
    invariants: tuple[str, ...]
    symmetric: bool
    machine: str = MODEL


class CheckpointContent(msgspec.Struct, Generic[Saved], frozen=True, forbid_unknown_fields=True):
    """What a checkpoint contains: the scope of a search, and what it has reached."""

    scope: Scope
    graph: Saved


def scope(
    cluster: Cluster, invariants: Iterable[str], *, symmetric: bool = False, machine: str = MODEL
) -> Scope:
    """The scope of a search."""
    config = msgspec.json.encode(config_json.to_json(cluster)).decode()
    return Scope(
        kvproof.__version__,
        config,
        tuple(sorted(f"{name} by {wrong.__module__}" for name, wrong in planted_now().items())),
        tuple(invariants),
        symmetric,
        machine,
    )


def save(path: Path, about: Scope, graph: msgspec.Struct, *, first: bool = False) -> None:
    """Write the search to its file, the `first` time to a new one, then in place of an earlier
    version. Raises UsageError if that fails."""
    data = msgspec.msgpack.encode(CheckpointContent(about, graph))
    head = HEAD.pack(MAGIC, VERSION, len(data))
    parts = head, _checksum(head, (data,)), data
    if first:
        write_new(path, b"".join(parts))
    else:
        replace(path, *parts)


def load(path: Path, about: Scope, saved: type[Saved]) -> Saved:
    """Load what a search has reached, of this type, from a file; only types are checked. Raises
    UsageError if there is none, or if it is broken or its scope is different."""
    with opened(path, "checkpoint", SIZE_MAX_MIB) as file, believed(path):
        # Nothing is read before the length of the file is known to be the one in its head.
        head, checksum = file.read(HEAD.size), file.read(CHECKSUM_BYTES)
        length = _length(path, head)
        if os.fstat(file.fileno()).st_size != len(head) + CHECKSUM_BYTES + length:
            raise Broken("the file has another length than it says")
        if checksum != _checksum(head, iter(lambda: file.read(MIB), b"")):
            raise Broken("its checksum is wrong")
        file.seek(len(head) + CHECKSUM_BYTES)
        content = msgspec.msgpack.decode(file.read(length), type=CheckpointContent[saved])  # type: ignore[valid-type]
        if content.scope != about:
            raise UsageError(
                f"The checkpoint {shown(path)} is of another search. "
                "Use the options it was started with, or leave --resume out."
            )
        found: Saved = content.graph
        return found


@contextmanager
def believed(path: Path) -> Iterator[None]:
    """While a search relies on this file: an error of the search is one of the file."""
    try:
        yield
    except (UsageError, OSError, MemoryError):
        raise
    except Exception as error:
        known = isinstance(error, Broken | msgspec.MsgspecError)
        why = str(error) if known else f"a step from one of its states ends in {error!r:.100}"
        raise UsageError(
            f"The checkpoint {shown(path)} is broken ({shown(why)}). "
            "Use the name of a new checkpoint, and leave --resume out to start again."
        ) from error


def _length(path: Path, head: bytes) -> int:
    """The length of the data after the head and the checksum."""
    if head.startswith(PICKLE):
        raise _other_format(path, "an older kvproof")
    if len(head) < HEAD.size or not head.startswith(MAGIC):
        raise UsageError(
            f"The file {shown(path)} is not a checkpoint. "
            "Use the name of a checkpoint, or leave --resume out to start."
        )
    _, version, length = HEAD.unpack(head)
    if version != VERSION:
        raise _other_format(path, "another kvproof")
    return int(length)


def _other_format(path: Path, maker: str) -> UsageError:
    return UsageError(
        f"The checkpoint {shown(path)} was made by {maker}, whose format is different. "
        "Use that kvproof to continue, or leave --resume out to start again."
    )


def _checksum(head: bytes, data: Iterable[bytes]) -> bytes:
    checksum = hashlib.blake2b(head, digest_size=CHECKSUM_BYTES)
    for part in data:
        checksum.update(part)
    return checksum.digest()
