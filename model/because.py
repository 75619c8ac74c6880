"""What a check says: that it holds, or facts that contradict each other, what they are about, and
what excuses them.

Facts are data. They are compared and stored; `wording` makes the sentences of them, for people.
"""

import functools
from collections.abc import Iterable
from enum import Enum
from typing import Any, Literal, NamedTuple, TypeAlias, Union

import msgspec

Scalar: TypeAlias = str | int | None
Item: TypeAlias = Scalar | tuple[Scalar, ...]
Value: TypeAlias = Union[Scalar, tuple[Item, ...], "Reason"]  # msgspec reads it
"""A number or a name of a fact, a list of them, or a fact that is a part of another one."""


class Reason(msgspec.Struct, frozen=True, eq=False, forbid_unknown_fields=True):
    """One fact. Two are equal if their kind and their values are equal.

    `kind` names what is stated, within the check that states it. `facts` has the numbers and the
    names. `says` is the sentence with gaps: `{name}` stands for a value of `facts` or a field of
    `About` (see `wording`). Nothing but `wording` reads it.
    """

    kind: str
    says: str
    facts: dict[str, Value] = {}  # msgspec copies it

    def __eq__(self, other: object) -> bool:
        """Whether the same is stated, in whatever words."""
        if not isinstance(other, Reason):
            return NotImplemented
        return (self.kind, self.facts) == (other.kind, other.facts)

    def __hash__(self) -> int:
        return hash((self.kind, *sorted(self.facts)))

    @property
    def shape(self) -> str:
        """What is stated, without the numbers and names: the kind, and those of its parts."""
        parts = [each.shape for each in self.facts.values() if isinstance(each, Reason)]
        return f"{self.kind}({', '.join(parts)})" if parts else self.kind


Reasons: TypeAlias = tuple[Reason, ...]
"""Facts that contradict each other, in reading order."""


class About(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a finding is about: the name of an engine, the name of a request, the index of a cache
    group, the id of a block, a cached prefix. A field is empty or None where the finding is not
    about one such thing."""

    engine: str = ""
    request: str = ""
    group: int | None = None
    block: int | None = None
    prefix: str = ""


NOTHING = About()
"""The value of `About` for a finding that is about no one thing."""


class Excuse(NamedTuple):
    """Why something that falls short of a check is no violation by itself.

    A `choice` is what a good scheduler may do, and the run shows why. A `release` is what vLLM does
    today, and nobody knows a reason why it should.
    """

    kind: Literal["choice", "release"]
    says: str


def choice(says: str) -> Excuse:
    """An excuse: a good scheduler may do this, and the run shows why."""
    return Excuse("choice", says)


def release(says: str) -> Excuse:
    """An excuse: vLLM does so today, and no reason is known why it should."""
    return Excuse("release", says)


class Judged(NamedTuple):
    """One answer of a check about one thing, or several things, that it judged.

    Without reasons, the check holds, for `times` things. With reasons, it does not hold for the
    things that `about` names. A break with excuses is counted, and is no violation by itself.
    """

    reasons: Reasons
    about: About = NOTHING
    excuses: tuple[Excuse, ...] = ()
    times: int = 1

    @property
    def breaks(self) -> bool:
        """Whether this is a violation."""
        return bool(self.reasons) and not self.excuses


def as_data(given: Any) -> Any:
    """A value as plain data, which does not change and can be stored."""
    if given is None or isinstance(given, Reason) or type(given) in (str, int):
        return given
    if isinstance(given, Enum):
        return given.value
    if isinstance(given, int):
        return int(given)
    if isinstance(given, str):  # the hashes of a prefix in a watched engine
        return repr(given)
    return tuple(map(as_data, given))


def reason(kind: str, says: str, /, **facts: Any) -> Reason:
    """A fact: its kind, its sentence with gaps, and its values by name."""
    return Reason(kind, says, {name: as_data(each) for name, each in facts.items()})


@functools.lru_cache(maxsize=1024)
def holds(times: int = 1) -> Judged:
    """The check holds for `times` things; 0 means that there was nothing to judge. The answers are
    cached, because a search asks for very many."""
    return Judged((), times=times)


def holds_if(right: object, times: int = 1) -> Judged | None:
    """The check holds for `times` things if they are `right`; None if not, so that a check says
    `yield holds_if(right) or because(...)`. The reasons are made only where they are needed."""
    return holds(times) if right else None


def because(*reasons: Reason, excuses: Iterable[Excuse] = (), **about: object) -> Judged:
    """The check does not hold: the reasons in order, the excuses if a scheduler may have any, and
    the fields of `About` by name. A sentence may name these, too."""
    return Judged(reasons, About(**about), tuple(excuses))  # type: ignore[arg-type]
