"""The whole contract, as `contract.toml` has it: each module, and everything in it or on its
objects that the adapter uses.

An entry has its place (see `entry`), its purpose and its feature.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kvproof.live.contract.entry import Entry, Place, place
from kvproof.live.contract.features import FEATURES
from kvproof.model.files.reading import read_text

BEGINS = re.compile(r"(!?)(\w+)(.*)")
"""A place: whether it must be absent, the first name, and the rest."""

ANY_OF = re.compile(r"(.*){(.*)}(.*)")
"""A text that stands for several, which differ in the names between the braces."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """What the file has. `shared` are the entries that a feature has in common with others before
    it, by their names."""

    names: dict[str, str | tuple[str, ...]]
    features: dict[str, dict[str, str]]
    shared: dict[str, tuple[str, ...]]


_FILE = msgspec.toml.decode(
    read_text(Path(__file__).with_name("contract.toml"), "contract"), type=_File
)

_NAMES = {
    name: (places,) if isinstance(places, str) else places for name, places in _FILE.names.items()
}
"""What a name stands for with which a place begins: a place, or several, the newest release
first."""


def _each(text: str) -> list[str]:
    """The texts for which a text stands."""
    parts = ANY_OF.fullmatch(text)
    if parts is None:
        return [text]
    before, names, after = parts.groups()
    return [f"{before}{name}{after}" for name in names.split(",")]


def _places(text: str) -> Iterator[Place]:
    """The places that a line has, without names that stand for others."""
    for each in text.split(" | "):
        parts = BEGINS.fullmatch(each)
        assert parts is not None, each
        absent, name, rest = parts.groups()
        for begin in _NAMES.get(name, (name,)):
            yield place(f"{absent}{begin}{rest}")


def _things() -> Iterator[Entry]:
    """The entries of the file, feature by feature."""
    known: dict[str, Entry] = {}
    for feature, lines in _FILE.features.items():
        for line in _FILE.shared.get(feature, ()):
            yield from (known[name]._replace(feature=feature) for name in _each(line))
        for line, used_for in lines.items():
            for each in _each(line):
                entry = Entry(feature, tuple(_places(each)), used_for)
                known[entry.name] = entry
                yield entry


_THINGS = tuple(_things())


def _modules() -> Iterator[Entry]:
    """The modules that entries need, each with the first feature that needs it."""
    order = list(FEATURES)
    needed: dict[str, list[Entry]] = {}
    for entry in _THINGS:
        if len(entry.places) == 1 and entry.places[0].module:
            needed.setdefault(entry.places[0].module, []).append(entry)
    for module, inside in needed.items():
        first = min(inside, key=lambda entry: order.index(entry.feature))
        names = sorted({entry.places[0].names[0] for entry in inside})
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield Entry(first.feature, (Place(False, module, (), "", ""),), f"home of {names[0]}{more}")


TABLE: tuple[Entry, ...] = (*_modules(), *_THINGS)
"""Modules come first: if a module is missing, everything in it is missing too."""


def things_of(feature: str) -> Iterator[Entry]:
    """The entries of a feature, without modules."""
    return (entry for entry in _THINGS if entry.feature == feature)
