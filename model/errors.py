"""What can be wrong: the input, an event that the spec forbids, the adapter of vLLM."""

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


class AdapterDrift(BaseException):
    """The adapter does not fit the vLLM that is there: nothing is said about vLLM. `why` says what
    is missing, `entry` names it as the table of the contract does.

    It is no Exception, as KeyboardInterrupt is none: no `except Exception` of vLLM swallows it, and
    no search takes it for a failure to be shrunk.
    """

    def __init__(self, why: str, entry: str = "") -> None:
        super().__init__(f"{why}. Use kvproof doctor to see what of this vLLM can be driven.")
        self.why = why
        self.entry = entry
