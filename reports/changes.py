"""This module shows the changes by one event in readable lines: one line per request, block or
transfer."""

from typing import Any, NamedTuple, TypeAlias

from kvproof.model.state import NULL
from kvproof.model.traces.state_diff import Change, Flat, parts

Subject: TypeAlias = tuple[str, ...]

HIDDEN = ("cached", "id", "name", "request")
"""Fields that would repeat another line: the keys of the blocks already show the cache."""


class ChangeEntry(NamedTuple):
    """The change of one request, block, transfer or engine, as text. `near` says whether it
    concerns what the trace is about."""

    kind: str
    engine: str
    name: str
    text: str
    near: bool = True


def entries(before: Flat, change: Change, after: Flat) -> list[ChangeEntry]:
    """Return an entry for each request, block or transfer that changed, in the order of the
    state."""
    fields: dict[Subject, dict[str, tuple[Any, Any]]] = {}
    for pointer in [*change.removed, *change.changed]:
        subject, name = _split(pointer)
        if name not in HIDDEN:
            old, new = before.get(pointer), after.get(pointer)
            fields.setdefault(subject, {})[name] = (old, new)
    return [
        ChangeEntry(*_kind(subject), f"{_title(subject)}: {text}")
        for subject, changed in sorted(fields.items(), key=lambda item: _order(item[0]))
        if (text := _line(subject, changed, before, after))
    ]


def _kind(subject: Subject) -> tuple[str, str, str]:
    """Return what changed: its kind, its engine and its name."""
    if subject[:1] == ("transfers",):
        return "transfer", "", subject[1]
    if len(subject) > 3:
        return subject[2].removesuffix("s"), subject[1], subject[3]
    return "engine", subject[1] if subject else "", ""


def _split(pointer: str) -> tuple[Subject, str]:
    """Split a JSON pointer into its subject (a request, block or transfer) and the field of it."""
    path = parts(pointer)
    if path[0] == "engines" and path[2] in ("blocks", "memory"):
        return (path[0], path[1], "block", path[3]), " ".join(path[4:] or ["holds"])
    if path[0] == "engines" and path[2] == "ghost":
        return _split_ghost(path)
    if path[0] == "engines" and path[2] == "requests":
        return path[:4], " ".join(path[4:])
    if path[0] == "transfers":
        return path[:2], " ".join(path[2:])
    return path[:-1], path[-1]


def _split_ghost(path: Subject) -> tuple[Subject, str]:
    """Split a pointer to history. History about a request belongs to the line of that request,
    other history to the line of its engine."""
    if path[3] == "shared":
        return (*path[:2], "requests", path[4]), "shared"
    return path[:2], path[3]


def _title(subject: Subject) -> str:
    if not subject:
        return "cluster"
    if subject[0] == "transfers":
        return f"transfer of {subject[1]}"
    return " ".join([subject[1], *subject[2:]]).replace("requests", "request")


def _order(subject: Subject) -> tuple[Any, ...]:
    number = int(subject[3]) if len(subject) > 3 and subject[2] == "block" else 0
    kind = ("requests", "block").index(subject[2]) if len(subject) > 2 else 2
    return (subject[:1] == ("transfers",), not subject, subject[1:2], kind, number, subject)


def _line(subject: Subject, changed: dict[str, tuple[Any, Any]], before: Flat, after: Flat) -> str:
    if (len(subject) == 4 and subject[2] == "requests") or subject[:1] == ("transfers",):
        base = "/" + "/".join(p.replace("~", "~0").replace("/", "~1") for p in subject)
        mark = base + ("/id" if subject[0] == "engines" else "/request")
        if mark not in after:
            return "gone"
        if mark not in before:
            return "new, " + ", ".join(f"{n} {_named(n, v)}" for n, (_, v) in changed.items() if v)
    if subject[2:3] == ("block",):
        return _block(subject, changed, after)
    return ", ".join(_change(name, old, new) for name, (old, new) in changed.items())


def _change(name: str, old: Any, new: Any) -> str:
    """Return a field with its old and its new value. Pairs have an arrow of their own, so the
    change is said in words."""
    if name == "pairs":
        return f"pairs {_named(name, new)}" + (f", before {_named(name, old)}" if old else "")
    return f"{name} {_named(name, old)} -> {_named(name, new)}"


def _named(name: str, v: Any) -> str:
    """Return the value of a field as text. Pairs of lists are `[1 2] <- [1 3]` for each group, with
    the receiver's blocks first."""
    if name == "pairs" and v:
        return " | ".join(f"{value(local)} <- {value(remote)}" for local, remote in v)
    return "none" if v == "" else value(v)


def _block(subject: Subject, changed: dict[str, tuple[Any, Any]], after: Flat) -> str:
    texts = []
    for name in ("refs", "key"):
        if name in changed:
            old, new = changed[name]
            write = key if name == "key" else value
            texts.append(f"{name} {write(old)} -> {write(new)}")
    if {"holds", "group", "slots"} & set(changed):
        texts.append(f"holds {content(subject[1], subject[3], after)}")
    return ", ".join(texts)


def key(cached_as: Any) -> str:
    """Return a cache key as text: the prefix and, in brackets, the group."""
    return f"{cached_as[1]} ({cached_as[0]})" if cached_as else "none"


def content(engine: str, block: str, state: Flat) -> str:
    """Return the content of a block as text: the prefix of each slot or Mamba state and, in
    brackets, the group."""
    base = f"/engines/{engine.replace('~', '~0').replace('/', '~1')}/memory/{block}"
    slots = state.get(f"{base}/slots")
    if slots is None or not any(slots):
        return "nothing"
    return f"{' '.join(s or '_' for s in slots)} ({state[f'{base}/group']})"


def value(v: Any) -> str:
    """Return a plain value as short text: lists of numbers as `1 2 3`, nested lists with bars
    between."""
    if v is None:
        return "none"
    if isinstance(v, list):
        if any(isinstance(item, list) for item in v):
            return "[" + " | ".join(_inner(item) for item in v) + "]"
        return "[" + " ".join(value(item) for item in v) + "]"
    return "''" if v == "" else str(v)


def _inner(v: Any) -> str:
    if isinstance(v, list):
        return " ".join(value(item) for item in v)
    return value(v)


def owners(engine: dict[str, Any]) -> dict[int, list[str]]:
    """Return the requests that have each block in a block table."""
    held: dict[int, list[str]] = {}
    for name, request in engine.get("requests", {}).items():
        for table in request["tables"]:
            for block in table:
                if block != NULL and name not in held.setdefault(block, []):
                    held[block].append(name)
    return held
