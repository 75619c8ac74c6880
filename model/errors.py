"""The two ways something can be wrong: the user's input, or an event the spec forbids."""

import difflib
from collections.abc import Iterable


class UsageError(Exception):
    """Bad input. The message is two sentences: what is wrong, and what to write instead."""


class NotAllowed(Exception):
    """The spec does not allow this event in this state. The message says which rule forbids it."""


def unknown(what: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that is not in a registry; suggests the nearest one."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.3)
    hint = near[0] if near else ", ".join(names)
    return UsageError(f"There is no {what} named {name!r}. Write {hint} instead.")
