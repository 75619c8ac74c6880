"""What an engine keeps when it has no requests: the containers that can be reached from its
scheduler, or from one side of its connector.

An engine without requests needs nothing that it noted for requests and steps; the next step takes
such notes away. Notes that stay, and of which there are more after each idle time, fill the memory
of the host (vllm#44490). The walk follows objects of vLLM and their containers. It leaves out
configs, and the block pool, which is bounded and which other checks judge.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Set
from functools import cache
from itertools import chain
from typing import Any

from kvproof.model.step import Kept

LEFT_OUT = ("vllm.config", "vllm.v1.kv_cache_interface", "vllm.v1.core.block_pool")
"""Modules whose objects the walk does not enter."""

ENTERED = ("vllm.",)
"""Modules whose objects the walk enters."""

Entries = dict[str, Counter[Any]]
"""The entries of each container that has some, by its path from the scheduler."""


def entries(
    root: Any,
    entered: tuple[str, ...] = ENTERED,
    left_out: tuple[str, ...] = LEFT_OUT,
    *,
    as_objects: bool = False,
) -> Entries:
    """All entries, names and hashes by value or, `as_objects`, as the objects that they are.
    Containers that lie in one container are taken together."""
    known_by = _object if as_objects else _value
    found: Entries = {}
    for path, value in reached(root, entered, left_out):
        kind: Any = type(value)
        if _is_container(kind) and value and not _bounded(value):
            found.setdefault(path, Counter()).update(map(known_by, value))
    return found


def named(root: Any, names: Set[str]) -> Iterator[tuple[str, str]]:
    """The places that have one of these names, each with the name: containers, keys of several
    parts, and fields of objects that lie in a container. What else has a field has one name."""
    for path, value in reached(root):
        kind: Any = type(value)
        if not _is_container(kind):
            all_fields = _attributes(value) if "[]" in path else ()
            fields = ((f"{path}.{field}", part) for field, part in all_fields)
            yield from ((at, part) for at, part in fields if _is_name(part, names))
        elif not _bounded(value):
            keys = [each for each in value if isinstance(each, tuple)] if _is_mapping(kind) else []
            yield from ((path, part) for part in chain(value, *keys) if _is_name(part, names))


def _is_name(thing: Any, names: Set[str]) -> bool:
    return isinstance(thing, str) and thing in names


def reached(
    root: Any, entered: tuple[str, ...] = ENTERED, left_out: tuple[str, ...] = LEFT_OUT
) -> Iterator[tuple[str, Any]]:
    """All objects and containers that can be reached, each once, with its path. Those of modules
    that are left out have no parts here, and neither have containers that are bounded."""
    seen: dict[int, Any] = {}
    left: list[tuple[str, Any]] = [(type(root).__name__, root)]
    while left:
        path, value = left.pop()
        kind: Any = type(value)
        mapping, container = _is_mapping(kind), _is_container(kind)
        if not (container or _is_entered(kind, entered, ())) or id(value) in seen:
            continue
        seen[id(value)] = value
        yield path, value
        if container:
            parts = () if _bounded(value) else value.values() if mapping else value
            left += [(f"{path}[]", each) for each in parts]
        elif _is_entered(kind, entered, left_out):
            left += [(f"{path}.{name}", each) for name, each in _attributes(value)]


@cache
def _is_mapping(kind: Any) -> bool:
    return issubclass(kind, Mapping)


@cache
def _is_container(kind: Any) -> bool:
    return issubclass(kind, Mapping | list | set | frozenset | deque | tuple)


def _bounded(container: Any) -> bool:
    """Whether a container drops its oldest entries by itself."""
    return getattr(container, "maxlen", None) is not None or hasattr(container, "maxsize")


@cache
def _is_entered(kind: Any, entered: tuple[str, ...], left_out: tuple[str, ...]) -> bool:
    module = kind.__module__
    return module.startswith(entered) and not module.startswith(left_out)


def _value(entry: Any) -> Any:
    return entry if isinstance(entry, str | bytes | int) else _Same(entry)


def _object(entry: Any) -> Any:
    """The identity of an entry: an entry that was removed and added again is another object with
    the same value. Numbers are compared by value, because equal numbers may be one object."""
    return entry if isinstance(entry, int) else _Same(entry)


class _Same:
    """An object that is equal to itself only, and is kept alive."""

    def __init__(self, entry: Any) -> None:
        self.entry = entry

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.entry is self.entry

    def __hash__(self) -> int:
        return id(self.entry)


@cache
def _slots(kind: Any) -> tuple[str, ...]:
    return tuple(name for each in kind.__mro__ for name in getattr(each, "__slots__", ()))


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    kind: Any = type(value)
    for name in (*getattr(value, "__dict__", ()), *_slots(kind)):
        yield name, getattr(value, name, None)


class Leftovers:
    """The entries that one scheduler keeps from one idle time to the next. `idle` and `stepped`
    compare them."""

    def __init__(self, scheduler: Any, engine: str, *modules: tuple[str, ...]) -> None:
        self.engine = engine
        self.scheduler = scheduler
        self.modules = modules
        self.at_start = self._now()
        self.left: Entries = {}
        self.stayed: Entries = {}

    def _now(self) -> Entries:
        return entries(self.scheduler, *self.modules, as_objects=True)

    def idle(self) -> None:
        """Record the entries that an engine without requests has beyond those at its start."""
        if not self.left:
            now = self._now()
            more = {where: own - self.at_start.get(where, Counter()) for where, own in now.items()}
            self.left = {where: own for where, own in more.items() if own}

    def stepped(self) -> tuple[Kept, ...]:
        """Compare at the beginning of a step: the entries that were left before the step and are
        still there, beside those of the idle time before."""
        if not self.left:
            return ()
        now = self._now()
        stayed = {where: own & now.get(where, Counter()) for where, own in self.left.items()}
        before, self.stayed, self.left = self.stayed, stayed, {}
        return tuple(
            Kept(self.engine, where, own.total(), was.total(), (was & own).total())
            for where, own in sorted(stayed.items())
            if own
            for was in [before.get(where, Counter())]
        )
