"""Why a check does not hold: facts that contradict each other, and what they are about.

Facts are data. They are compared and stored; `wording` makes the sentences of them, for people.
"""

from enum import Enum
from typing import Any, NamedTuple, TypeAlias, Union

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
"""Nothing in particular."""


class Because(NamedTuple):
    """Reasons, and what they are about."""

    reasons: Reasons
    about: About = NOTHING


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


def because(*reasons: Reason, **about: object) -> Because:
    """Reasons in order, and the fields of `About` by name. A sentence may name these, too."""
    return Because(reasons, About(**about))  # type: ignore[arg-type]
