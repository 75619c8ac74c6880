"""Why a check does not hold: facts that contradict each other, and what they are about."""

import re
from collections.abc import Iterable
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


ONE = re.compile(
    r"(?<![\w.-])1 ((?:\w+ )?(?:block|entr|prompt|request|slot|token))(s|ies)( were| are)?\b"
)
"""A count of one with its noun in the plural."""


def because(*reasons: str, **about: object) -> Because:
    """Reasons in order, and the fields of `About` by name. A reason may count `1 tokens`."""
    return Because(tuple(ONE.sub(_one, each) for each in reasons), About(**about))  # type: ignore[arg-type]


def _one(plural: re.Match[str]) -> str:
    noun, ending, verb = plural.groups()
    return f"1 {noun}{'y' * (ending == 'ies')}{VERB[verb]}"


VERB = {None: "", " were": " was", " are": " is"}


def listed(prefixes: Iterable[str]) -> str:
    """What slots hold, in a reason: `'a', 'ab'`, and `_` for a slot that was never written."""
    return ", ".join(f"'{prefix}'" if prefix else "_" for prefix in prefixes)


def quoted(prefix: str | None) -> str:
    """A prefix in a reason: `'abc'`. A dot in it is no full stop, and the text says so."""
    dot = " (each dot is a sampled token)" if prefix and "." in prefix else ""
    return f"'{prefix or ''}'{dot}"
