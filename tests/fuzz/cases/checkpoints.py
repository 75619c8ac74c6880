"""Checkpoints: bits, cuts, foreign bytes, other searches, and payloads that were made for harm.

A damaged checkpoint is refused, or the search ends as it would have ended.
"""

import hashlib
import pickle
import struct
import zlib
from random import Random
from typing import Any

import msgspec
from hypothesis import strategies as st

from kvproof.strategies.explorer import checkpoint as checkpoint_file
from tests.fuzz.case import Case
from tests.fuzz.material import SMALL, checkpoint, drawn, explored
from tests.fuzz.mutations import HOWS, ODD_VALUES, bytes_changed, change, places

COMPARED = (
    "verdict",
    "exit_code",
    "states_distinct",
    "states_generated",
    "depth",
    "events",
    "events_new",
    "goals",
    "margins",
)
"""Fields of the JSON output that must be those of a search without a checkpoint."""


CODE = ("verdict", "exit_code")

CHECKSUM_BYTES = 32


class _Calls:
    """A pickle that calls a function when it is loaded."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def _pickles() -> list[bytes]:
    """Pickles that write a file, or take much memory, if something loads them."""
    writes = b"open('pwned','w').close()"
    dotted = [
        b"ckvproof.model." + module + b"\n" + name + b"\n(S'" + writes + b"'\ntR."
        for module in (b"state", b"events", b"ghost_state", b"phases")
        for name in (b"__builtins__.eval", b"__builtins__.get")
    ]
    through = b"\x80\x04\x8c\x14kvproof.model.errors\x8c\x18unknown.__builtins__.get\x93."
    huge = b"\x80\x04\x8e" + struct.pack("<Q", 4 << 30) + b"."
    memo = b"\x80\x04Nr\xff\xff\xff\x0e."  # LONG_BINPUT: a memo of 4 GB
    return [*dotted, through, huge, memo, pickle.dumps(_Calls(exec, writes.decode()))]


def _flipped(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def _in_head(random: Random, data: bytes) -> bytes:
    """A change in the first bytes, where a format has its version, lengths and checksums."""
    at, size = random.randrange(min(64, len(data))), random.choice((1, 2, 4, 8))
    value = random.choice((0, 1, 0x7F, 0xFF))
    return data[:at] + bytes([value]) * size + data[at + size :]


def _bombs(random: Random) -> bytes:
    """Bytes that unpack to much more."""
    zeros = zlib.compress(bytes(200 << 20), 9)
    return random.choice(
        (zeros, b"\x1f\x8b" + zeros, b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff")
    )


def damaged(random: Random, data: bytes) -> bytes:
    """A checkpoint with one kind of damage."""
    how = random.choice(
        ("bit",) * 8 + ("cut",) * 4 + ("head",) * 3 + ("bytes",) * 3 + ("other",) * 2
    )
    if how == "bit":
        return _flipped(random, data)
    if how == "cut":
        return data[: random.randrange(len(data))]
    if how == "head":
        return _in_head(random, data)
    if how == "bytes":
        return bytes_changed(random, data)
    made = random.choice(("pickle", "bomb", "random", "twice", "zeros"))
    if made == "pickle":
        return random.choice(_pickles())
    if made == "bomb":
        return _bombs(random)
    if made == "random":
        return random.randbytes(random.randrange(400))
    return data + data if made == "twice" else bytes(len(data))


@st.composite
def crafted(draw: st.DrawFn, data: bytes) -> bytes:
    """A checkpoint with changed content and the right checksum."""
    content = msgspec.msgpack.decode(data[checkpoint_file.HEAD.size + CHECKSUM_BYTES :])
    for _ in range(draw(st.integers(1, 2))):
        content = _changed(draw, content)
    return sealed(msgspec.msgpack.encode(content))


def sealed(data: bytes) -> bytes:
    """A checkpoint with this content."""
    head = checkpoint_file.HEAD.pack(checkpoint_file.MAGIC, checkpoint_file.VERSION, len(data))
    checksum = hashlib.blake2b(head, digest_size=CHECKSUM_BYTES)
    checksum.update(data)
    return head + checksum.digest() + data


def _changed(draw: st.DrawFn, content: Any) -> Any:
    """One change: of a value, or of the bytes of an array of numbers."""
    graph = sorted((path for path in places(content["graph"])), key=str)
    path = ("graph", *draw(st.sampled_from(graph)))
    value: Any = content
    for key in path:
        value = value[key]
    if not isinstance(value, bytes) or not value:
        fits = st.integers(-(2**63), 2**64 - 1)
        odd = ODD_VALUES.filter(_in_messagepack) | fits if isinstance(value, int) else ODD_VALUES
        return change(
            content, path, draw(st.sampled_from(HOWS)), draw(odd.filter(_in_messagepack))
        )[0]
    at = draw(st.integers(0, len(value) - 1))
    byte = bytes([draw(st.integers(0, 255))])
    cut, other = value[: at + 1], value[:at] + byte + value[at + 1 :]
    return change(content, path, "replaced", draw(st.sampled_from((other, other, cut, value * 2))))[
        0
    ]


def _in_messagepack(value: Any) -> bool:
    """Whether MessagePack can hold a value."""
    try:
        return bool(msgspec.msgpack.encode(value))
    except (OverflowError, UnicodeEncodeError):
        return False


def case(random: Random, key: str, number: int) -> Case:
    """A search that continues from a damaged checkpoint."""
    name = random.choice(SMALL[:8])
    cut = random.choice((None, 4, 9, 15))
    data = checkpoint(name, cut)
    of = name if random.randrange(12) else random.choice(SMALL)
    made = random.randrange(5) == 0
    if made:
        index = f"{key}:{name}:{cut}"
        data = drawn(crafted(data), index, number)
    elif random.randrange(10):
        data = damaged(random, data)
    argv = ["explore", "--config", of, "--checkpoint", "c", "--resume", "--json"]
    if random.randrange(10) == 0:
        argv.append("--symmetry")
        return Case(
            tuple(argv), files={"c": data}, replaces=("c",), invalid="it is of another search"
        )
    full = explored(of)
    return Case(
        tuple(argv),
        files={"c": data},
        outputs=("kvproof-traces",),
        replaces=("c",),
        # What was made on purpose may forge a count, but never a violation.
        same_as={name: full[name] for name in (CODE if made else COMPARED) if name in full},
    )
