"""What an engine keeps when it has no requests: the containers that can be reached from its
scheduler.

An engine without requests needs nothing that it noted for requests and steps; the next step takes
such notes away. Notes that stay, and of which there are more after each idle time, fill the memory
of the host (vllm#44490). The walk follows objects of vLLM and their containers. It leaves out
configs, and the block pool, which is bounded and which other checks judge.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any

from kvproof.model.step import Kept

LEFT_OUT = ("vllm.config", "vllm.v1.kv_cache_interface", "vllm.v1.core.block_pool")
"""Modules whose objects the walk does not enter."""

ENTERED = ("vllm.",)
"""Modules whose objects the walk enters."""

Entries = dict[str, Counter[Any]]
"""The entries of each container that has some, by its path from the scheduler."""


def entries(
    root: Any, entered: tuple[str, ...] = ENTERED, left_out: tuple[str, ...] = LEFT_OUT
) -> Entries:
    """All entries. Containers that lie in one container are taken together."""
    found: Entries = {}
    seen: dict[int, Any] = {}
    left: list[tuple[str, Any]] = [(type(root).__name__, root)]
    while left:
        path, value = left.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, Mapping | list | set | frozenset | deque | tuple):
            if value and not _bounded(value):
                found.setdefault(path, Counter()).update(map(_known_by, value))
            inner = value.values() if isinstance(value, Mapping) else value
            left += [(f"{path}[]", each) for each in inner]
        elif _entered(value, entered, left_out):
            left += [(f"{path}.{name}", each) for name, each in _attributes(value)]
    return found


def _bounded(container: Any) -> bool:
    """Whether a container drops its oldest entries by itself."""
    return getattr(container, "maxlen", None) is not None or hasattr(container, "maxsize")


def _entered(value: Any, entered: tuple[str, ...], left_out: tuple[str, ...]) -> bool:
    module = type(value).__module__
    return module.startswith(entered) and not module.startswith(left_out)


def _known_by(entry: Any) -> Any:
    """What an entry is compared by: its value, or the object itself, which is kept alive."""
    return entry if isinstance(entry, str | bytes | int) else _Same(entry)


class _Same:
    """An object that is equal to itself only."""

    def __init__(self, entry: Any) -> None:
        self.entry = entry

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.entry is self.entry

    def __hash__(self) -> int:
        return id(self.entry)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    slots = (name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()))
    for name in (*getattr(value, "__dict__", ()), *slots):
        yield name, getattr(value, name, None)


class Leftovers:
    """What one scheduler keeps from one idle time to the next. `idle` and `stepped` look at it."""

    def __init__(self, scheduler: Any, engine: str, *modules: tuple[str, ...]) -> None:
        self.engine = engine
        self.scheduler = scheduler
        self.modules = modules
        self.at_start = entries(scheduler, *modules)
        self.left: Entries = {}
        self.stayed: Entries = {}

    def idle(self) -> None:
        """The engine has no requests: note what it has more than at the start."""
        if not self.left:
            now = entries(self.scheduler, *self.modules)
            more = {where: own - self.at_start.get(where, Counter()) for where, own in now.items()}
            self.left = {where: own for where, own in more.items() if own}

    def stepped(self) -> tuple[Kept, ...]:
        """A step has begun. What was left before it and has stayed is kept for nobody, if it is
        more than had stayed the last time."""
        if not self.left:
            return ()
        now = entries(self.scheduler, *self.modules)
        stayed = {where: own & now.get(where, Counter()) for where, own in self.left.items()}
        before, self.stayed, self.left = self.stayed, stayed, {}
        return tuple(
            Kept(self.engine, where, own.total())
            for where, own in sorted(stayed.items())
            if before.get(where) and before[where] < own
        )
