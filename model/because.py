"""Why a check does not hold: facts that contradict each other, and what they are about."""

from typing import NamedTuple, TypeAlias

import msgspec

Reasons: TypeAlias = tuple[str, ...]
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


class Because(NamedTuple):
    """Reasons, and what they are about."""

    reasons: Reasons
    about: About = About()


def because(*reasons: str, **about: object) -> Because:
    """Reasons in order, and the fields of `About` by name."""
    return Because(reasons, About(**about))  # type: ignore[arg-type]


def quoted(prefix: str | None) -> str:
    """A prefix in a reason: `'abc'`. A dot in it is no full stop, and the text says so."""
    dot = " (each dot is a sampled token)" if prefix and "." in prefix else ""
    return f"'{prefix or ''}'{dot}"
