"""Placeholders for the parts of a state that a step must not depend on.

A placeholder gives a name and raises `Unseen` for any other access, also for its text and its class
(`str`, f-strings, `isinstance`). A tuple that has placeholders raises `Unseen` where it is asked
for its length, its truth or its items by index. So a step that was computed with placeholders is
the step of every state with the same other parts.

Three questions get an answer without an exception, and no rule and no check may ask them: whether a
placeholder *is* another object, what `type` says of it, and how often a loop over the transfers or
the ended jobs goes round. `tests/test_packed.py` compares all presets with a search that hides
nothing.
"""

from typing import Any, ClassVar, NoReturn

from kvproof.model.state import State
from kvproof.strategies.explorer.collapse import Collapse


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
