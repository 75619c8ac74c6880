"""States as a few numbers, by sharing their parts (SPIN calls it COLLAPSE), and placeholders for
the parts that a step must not depend on.

The parts of a state are its engines, the transfer of each request, what has ended on each engine,
and the number of failures. Each distinct part is stored once, with a number. A state is stored as
the numbers of its parts. Two states are equal if and only if these numbers are equal.

A placeholder gives a name and raises `Unseen` for any other access, also for its text and its class
(`str`, f-strings, `isinstance`). A tuple that has placeholders raises `Unseen` where it is asked
for its length, its truth or its items by index. So a step that was computed with placeholders is
the step of every state with the same other parts.

Three questions get an answer without an exception, and no rule and no check may ask them: whether a
placeholder *is* another object, what `type` says of it, and how often a loop over the transfers or
the ended jobs goes round. `tests/test_packed.py` compares all presets with a search that hides
nothing.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

from kvproof.model.config import Cluster
from kvproof.model.config.sides import is_reverse, transfer_names
from kvproof.model.state import State

Parts = tuple[int, ...]
"""The numbers of a state's parts, in the order of `Collapse.split`."""


class Collapse:
    """The parts seen so far, and the codec that they define."""

    def __init__(self, cluster: Cluster) -> None:
        self.engines = [engine.name for engine in cluster.engines]
        names = transfer_names(cluster)
        if not cluster.follow_up_turns:
            names = [name for name in names if not is_reverse(name)]
        self.transfers = sorted(names)
        self.width = 2 * len(self.engines) + len(self.transfers) + 1
        self._sorted = sorted(range(len(self.engines)), key=self.engines.__getitem__)
        self.components: list[Any] = []
        self.numbers: dict[Any, int] = {}
        self._known: dict[int, int] = {}
        self._shared: dict[Any, Any] = {}
        self._kept: set[int] = set()

    def number(self, component: Any) -> int:
        """The number of a component; a new component is stored."""
        # Most often it is the same object: an event does not change most components.
        number = self._known.get(id(component))
        if number is not None and self.components[number] is component:
            return number
        number = self.numbers.get(component)
        if number is None:
            number = len(self.components)
            kept = self._share(component)
            self.components.append(kept)
            self.numbers[kept] = number
            self._known[id(kept)] = number
        return number

    def _share(self, value: Any) -> Any:
        """An equal value whose equal tuples of one type are the same object."""
        if not isinstance(value, tuple) or not value or id(value) in self._kept:
            return value
        parts = tuple(map(self._share, value))
        kind = type(value)
        made = kind(*parts) if hasattr(kind, "_fields") else parts
        # Tuples of two types may be equal, such as a Served and a pair of a name and a number.
        key = (kind, *(id(p) if isinstance(p, tuple) and p else (type(p), p) for p in parts))
        kept = self._shared.setdefault(key, made)
        self._kept.add(id(kept))
        return kept

    def split(self, state: State) -> list[Any]:
        """The parts of a state: its engines; the transfers by name, None where there is none; the
        ended jobs of each engine; and the failures."""
        # This makes a name plain: that of a hidden part cannot be compared (see `HiddenName`).
        plain = str.__str__
        transfers = dict.fromkeys(self.transfers)
        for transfer in state.transfers:
            transfers[plain(transfer.request)] = transfer
        ended = [tuple(e for e in state.ended if plain(e[0]) == name) for name in self.engines]
        return [*state.engines, *transfers.values(), *ended, state.failures]

    def join(self, parts: Sequence[Any]) -> State:
        """The state with these parts."""
        count, end = len(self.engines), self.width - 1
        middle = end - count
        transfers = tuple(t for t in parts[count:middle] if t is not None)
        ended = tuple(job for place in self._sorted for job in parts[middle + place])
        return State(tuple(parts[:count]), transfers, ended, parts[end])

    def parts(self, state: State) -> Parts:
        """The numbers of the parts of a state."""
        return tuple(map(self.number, self.split(state)))

    def state(self, parts: Parts) -> State:
        """The state with these parts; equal parts are the same objects."""
        return self.join([self.components[number] for number in parts])


class Unseen(BaseException):
    """A hidden part of a state was accessed. `place` is the place of the part in `Parts`. It is no
    `Exception`, so that no rule that handles exceptions takes it for one of its own."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place


def _raise_unseen(hidden: Any, *_anything: Any) -> NoReturn:
    raise Unseen(hidden.place)


class HiddenPart:
    """The placeholder of a part. Any access raises Unseen."""

    __slots__ = ("place",)

    def __init__(self, place: int) -> None:
        self.place = place

    _refuse: ClassVar[Any] = _raise_unseen
    __getattr__ = __getitem__ = __iter__ = __len__ = __hash__ = __bool__ = __contains__ = _refuse
    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __index__ = __int__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __str__ = __repr__ = __format__ = _refuse
    # `isinstance` asks for it where the type alone does not give the answer.
    __class__ = property(_raise_unseen)


class HiddenEngine(HiddenPart):
    """The placeholder of an engine. It gives its name."""

    __slots__ = ("name",)

    def __init__(self, place: int, name: str) -> None:
        super().__init__(place)
        self.name = name


class HiddenName(str):
    """The first field of hidden entries. It differs from other names; whether it equals its own
    name is hidden, and it cannot be printed."""

    __slots__ = ("place",)
    place: int

    def __new__(cls, place: int, name: str) -> "HiddenName":
        made = super().__new__(cls, name)
        made.place = place
        return made

    def __eq__(self, other: object) -> bool:
        if str.__eq__(self, other):
            raise Unseen(self.place)
        return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__
    _refuse: ClassVar[Any] = _raise_unseen
    __len__ = __add__ = __radd__ = __str__ = __repr__ = __format__ = _refuse


class HiddenEntries(HiddenPart):
    """The placeholder of the entries of a tuple that begin with a name: the transfer of a request,
    or what has ended on an engine. It differs from all other entries and is sorted among them,
    because neither depends on what it hides."""

    __slots__ = ("request",)

    def __init__(self, place: int, name: str) -> None:
        super().__init__(place)
        self.request = HiddenName(place, name)

    def __getitem__(self, index: int) -> str:
        return self.request if index == 0 else self._refuse()

    def __eq__(self, other: Any) -> bool:
        return self is other or self.request == other[0]

    def __lt__(self, other: Any) -> bool:
        return self.request != other[0] and str.__lt__(self.request, other[0])

    def __gt__(self, other: Any) -> bool:
        return self.request != other[0] and str.__gt__(self.request, other[0])

    __hash__ = object.__hash__


class PartlyHidden(tuple[Any, ...]):
    """A tuple with hidden entries. One may loop over it and look for an entry in it; how many there
    are is hidden."""

    def _refuse(self, *_anything: Any) -> NoReturn:
        raise Unseen(next(entry.place for entry in self if type(entry) is HiddenEntries))

    __getitem__ = __len__ = __bool__ = __hash__ = __add__ = __str__ = __repr__ = _refuse
    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __format__ = _refuse


def guarded(state: State) -> State:
    """The state, whose tuples with hidden entries do not say how many there are."""
    return State(state.engines, _guarded(state.transfers), _guarded(state.ended), state.failures)


def _guarded(entries: tuple[Any, ...]) -> tuple[Any, ...]:
    if type(entries) is tuple and HiddenEntries in map(type, entries):
        return PartlyHidden(entries)
    return entries


def hidden_parts(collapse: Collapse) -> list[Any]:
    """A placeholder for each part of a state, in the order of `Collapse.split`."""
    count, end = len(collapse.engines), collapse.width - 1
    return [
        *(HiddenEngine(place, name) for place, name in enumerate(collapse.engines)),
        *(HiddenEntries(place, name) for place, name in enumerate(collapse.transfers, count)),
        *((HiddenEntries(place, n),) for place, n in enumerate(collapse.engines, end - count)),
        HiddenPart(end),
    ]
