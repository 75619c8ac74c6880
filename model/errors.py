"""The errors of kvproof: bad input, an event that the spec forbids, an adapter that does not fit
vLLM."""

import difflib
from collections.abc import Iterable

NAMED = 8
"""The number of known names in an error."""

NAME_MAX = 80
"""The number of characters of a wrong name in an error."""

ALIKE_MIN = 0.7
"""How much alike two names must be for one to be suggested for the other, as difflib counts it."""


class UsageError(Exception):
    """Bad input. The message is two sentences: what is wrong, and what to use instead."""


class NotValid(UsageError, ValueError):
    """Values that make no valid record; `field` is the wrong one, empty where it is the whole. A
    decoder adds the place in its data: msgspec passes only a ValueError on."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class NotAllowed(Exception):
    """The spec does not allow this event in this state. The message says which rule forbids it."""


class NoRoom(NotAllowed):
    """A request needs more blocks than are free: both as numbers of blocks."""

    def __init__(self, message: str, needed: int, free: int) -> None:
        super().__init__(message)
        self.needed = needed
        self.free = free


class NoPlace(NotAllowed):
    """As many requests run as may run at a time (`max_num_seqs`)."""


class NoTokens(NotAllowed):
    """The step has no tokens left for a request that it could schedule."""


class FaultStopsModel(Exception):
    """The model cannot go on with a mistake that is planted in it. The message says after which
    fault, and where."""


def unknown(what: str, name: str, known: Iterable[str], home: str = "") -> UsageError:
    """The error for a name that is not in a registry; suggests the nearest one, or a new one in the
    folder `home`."""
    names = sorted(known)
    few = ", ".join(names[:NAMED])
    more = f", or another of the {len(names)}," if len(names) > NAMED else ""
    hint = nearest(name, names) or f"{few}{more}"
    new = f", or write it in {home}" if home and name.isidentifier() else ""
    return UsageError(f"There is no {what} named {name[:NAME_MAX]!r}. Use {hint} instead{new}.")


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like a name, empty where none is."""
    return next(iter(alike(name, known, 1)), "")


def alike(name: str, known: Iterable[str], most: int) -> list[str]:
    """The known names that are like a name, the one that is most like it first."""
    return difflib.get_close_matches(name[:NAME_MAX], sorted(known), most, ALIKE_MIN)


class AdapterDrift(BaseException):
    """The adapter does not fit the installed vLLM; this is no statement about vLLM's behaviour.
    `why` says what is missing. `entry` is its name in the table of the contract. `later` says that
    only a feature is missing that came after the release that is tested in full.

    Like KeyboardInterrupt, it is not an Exception: no `except Exception` in vLLM catches it, and no
    search shrinks it as a failure.
    """

    def __init__(self, why: str, entry: str = "", *, later: bool = False) -> None:
        super().__init__(f"{why}. Use kvproof doctor to see what of this vLLM can be driven.")
        self.why = why
        self.entry = entry
        self.later = later
