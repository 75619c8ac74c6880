"""Mutations of bytes and of plain data."""

import copy
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

from hypothesis import strategies as st

INTERESTING = (
    b"\0",
    b"\xff",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\n",
    b"1e999",
    b"-",
    b"\x80",
)

ODD_TEXTS = (
    "",
    " ",
    "x" * 64,
    "x" * 65,
    "x" * 5000,
    "[red]r[/red]",
    "[/red]",
    "req[a]",
    "a\nb",
    "\x1b[31mred",
    "\x00",
    "é",
    "名前",
    "\u202eabc",
    "\ud800",
    "r0 reverse",
    "a/b",
    "~1~0",
    "../x",
    "%s{0}",
    ":smile:",
)
"""Texts that programs get wrong: empty, long, markup, control characters, lone surrogates."""

ODD_NUMBERS = (
    -1,
    0,
    1,
    2,
    3,
    255,
    2**31,
    2**63,
    2**64,
    -(2**63) - 1,
    10**400,
    1.0,
    1.5,
    -0.0,
    1e308,
)

ODD_VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(ODD_NUMBERS),
    st.integers(-3, 300),
    st.sampled_from(ODD_TEXTS),
    st.text(max_size=8),
    st.sampled_from(("true", "false", "1", "pd", "full", "push", "priority")),
    st.just([]),
    st.just({}),
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.just([[]]),
    st.just([None]),
    st.just({"name": "E"}),
    st.just({"": 1}),
)
"""Values of every JSON type."""


class Change(NamedTuple):
    """One change of plain data. `path` are keys and indices. `old` and `new` are the values before
    and after; `how` says what was done there: replaced, removed, renamed, added or repeated."""

    how: str
    path: tuple[str | int, ...]
    old: Any
    new: Any

    @property
    def other_type(self) -> bool:
        """Whether the value has another JSON type now."""
        return self.how == "replaced" and json_type(self.old) != json_type(self.new)


def json_type(value: Any) -> str:
    """The JSON type of a value; an integer is not a number with a fraction."""
    return type(value).__name__ if value is not None else "null"


def places(data: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths of all values in plain data."""
    items: Any = ()
    if isinstance(data, dict):
        items = data.items()
    elif isinstance(data, list):
        items = enumerate(data)
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def change(data: Any, path: tuple[str | int, ...], how: str, value: Any) -> tuple[Any, Change]:
    """A copy of plain data with one change."""
    made = copy.deepcopy(data)
    inner: Any = made
    for key in path[:-1]:
        inner = inner[key]
    key, old = path[-1], inner[path[-1]]
    if how == "removed":
        del inner[key]
    elif how == "renamed" and isinstance(inner, dict):
        inner[f"{key}s"] = inner.pop(key)
    elif how == "added" and isinstance(inner, dict):
        inner["other"] = value
    elif how in ("added", "repeated") and isinstance(inner, list):
        inner.insert(int(key), copy.deepcopy(old))
        how = "repeated"
    else:
        inner[key], how = value, "replaced"
    return made, Change(how, path, old, value)


HOWS = ("replaced",) * 6 + ("removed", "renamed", "added", "repeated")


def changed(draw: Callable[..., Any], data: Any) -> tuple[Any, Change]:
    """One drawn change of plain data."""
    path = draw(st.sampled_from(sorted(places(data), key=str)))
    return change(data, path, draw(st.sampled_from(HOWS)), draw(ODD_VALUES))


def as_json(data: Any) -> bytes:
    """Plain data as JSON, also where it has lone surrogates."""
    return json.dumps(data).encode()


def bytes_changed(random: Random, data: bytes) -> bytes:
    """One to four changes of bytes: flips, cuts, repeats, inserts."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        data = _one_change(random, data)
    return data


def _one_change(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    to = min(len(data), at + random.choice((1, 1, 2, 8, 64)))
    how = random.choice(
        ("flip", "flip", "flip", "cut", "end", "repeat", "insert", "random", "swap")
    )
    if how == "flip" and at < len(data):
        return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
    if how == "cut":
        return data[:at] + data[to:]
    if how == "end":
        return data[:at]
    if how == "repeat":
        return data[:to] + data[at:]
    if how == "swap":
        return data[:at] + data[to : to + 4] + data[at:to] + data[to + 4 :]
    piece = random.choice(INTERESTING) if how == "insert" else random.randbytes(to - at + 1)
    return data[:at] + piece + data[at if how == "insert" else to :]
