"""The layout of the numbers of a `System`'s states in 64-bit words, as few as their ranges need.

A number takes as many bits as its range needs, counted from its lowest value. An entry of the field
`alike` is one piece of a word if it fits, so entries are compared and exchanged without unpacking.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kvproof.model.arithmetic.ranges import Range
from kvproof.model.arithmetic.system import Numbers, System, flat
from kvproof.model.errors import UsageError

BITS = 63
"""The number of bits of a word that are used. The highest bit is reserved for the codec."""


class Place(NamedTuple):
    """A number: its name, its range, and the word and position of its bits."""

    name: str
    lowest: int
    highest: int
    word: int
    shift: int
    bits: int


class Piece(NamedTuple):
    """Neighbouring bits of a word: part of an entry of `alike`."""

    word: int
    shift: int
    bits: int


class Layout(NamedTuple):
    """The places of the numbers, in order; the pieces of each entry of `alike`; how many words."""

    places: list[Place]
    entries: list[list[Piece]]
    words: int


def laid_out(system: System, parameters: Numbers) -> Layout:
    """The layout of a system's states with these parameters."""
    shape = system.ranges(parameters)
    numbers = list(_named(shape))
    sizes = [_bits(name, range_) for name, range_ in numbers]
    groups, entries = _groups(shape, system.alike, sizes)
    pieces = _pieces([sum(sizes[n] for n in group) for group in groups])
    places: dict[int, Place] = {}
    for group, piece in zip(groups, pieces, strict=True):
        shift = piece.shift + piece.bits
        for n in group:
            name, (lowest, highest) = numbers[n]
            shift -= sizes[n]
            places[n] = Place(name, lowest, highest or 0, piece.word, shift, sizes[n])
    return Layout(
        [places[n] for n in range(len(numbers))],
        [[pieces[group] for group in entry] for entry in entries],
        1 + max(piece.word for piece in pieces),
    )


def _named(shape: Numbers, name: str = "") -> Iterator[tuple[str, tuple[int, int | None]]]:
    """The name and the range of each number, in order."""
    if isinstance(shape, Range):
        yield name, shape
        return
    fields = getattr(shape, "_fields", None)
    for number, part in enumerate(shape):
        inner = f"{name}.{fields[number]}".lstrip(".") if fields else f"{name}[{number}]"
        yield from _named(part, inner)


def _bits(name: str, range_: tuple[int, int | None]) -> int:
    lowest, highest = range_
    if highest is None or highest < lowest or (highest - lowest).bit_length() > BITS:
        raise UsageError(
            f"The range of {name} is {lowest}..{'' if highest is None else highest}, which cannot "
            f"be packed. Give it a last value, less than 2**{BITS} above the first."
        )
    return (highest - lowest).bit_length()


def _groups(
    shape: Numbers, alike: str, sizes: Sequence[int]
) -> tuple[list[list[int]], list[list[int]]]:
    """The numbers that go into one piece together, and the pieces of each entry of `alike`."""
    groups: list[list[int]] = []
    entries: list[list[int]] = []
    start = 0
    for name, part in zip(shape._fields, shape, strict=True):
        size = sum(1 for _ in flat(part))
        if name != alike:
            groups += [[n] for n in range(start, start + size)]
        else:
            if any(entry != part[0] for entry in part):
                raise UsageError(
                    f"The entries of {alike} have different ranges. Give them the same ones, or "
                    f"declare nothing alike."
                )
            for entry in part:
                entries.append([len(groups)])
                groups.append([])
                for n in range(start, start + sum(1 for _ in flat(entry))):
                    if sum(sizes[m] for m in groups[-1]) + sizes[n] > BITS:
                        entries[-1].append(len(groups))
                        groups.append([])
                    groups[-1].append(n)
                start += sum(1 for _ in flat(entry))
            continue
        start += size
    if alike and not entries:
        raise UsageError(f"There is no field {alike!r} of the state. Use a name it has.")
    return groups, entries


def _pieces(sizes: Sequence[int]) -> list[Piece]:
    """A place for each piece: the largest first, in the first word that has room."""
    filled: list[int] = []
    pieces: dict[int, Piece] = {}
    for number in sorted(range(len(sizes)), key=lambda n: -sizes[n]):
        bits = sizes[number]
        word = next((w for w, used in enumerate(filled) if used + bits <= BITS), len(filled))
        if word == len(filled):
            filled.append(0)
        pieces[number] = Piece(word, filled[word], bits)
        filled[word] += bits
    return [pieces[number] for number in range(len(sizes))]
