"""Who caused an exception in a call of vLLM: the adapter or an engine.

The adapter caused an exception that is raised in its own code, or that reports a missing name of
the contract. Any other exception is the death of an engine. (A stand-in of kvproof raises
AdapterDrift itself for what it lacks.)
"""

import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kvproof.live import contract_samples as samples
from kvproof.live.contract.lookup import last_line
from kvproof.live.contract.table import TABLE
from kvproof.live.damage import Damage
from kvproof.live.fake import FakeParams
from kvproof.model.errors import AdapterDrift, NotAllowed, UsageError

_ROOT = Path(__file__).parent.parent
_OURS = tuple(_ROOT / room for room in ("live", "model", "strategies", "invariants"))

_CALLED = re.compile(r"(?P<callee>[\w.<>]+)\(\) ")
_NOT_IN = re.compile(r"cannot import name '(?P<name>\w+)'")

_PLACES = [place for entry in TABLE for place in entry.places]
_OWNED = {(place.owner, place.mentioned or place.names[-1]) for place in _PLACES if place.names}
_MODULES = {place.module for place in _PLACES}
_NAMES = {place.names[0] for place in _PLACES if place.module and place.names}
_TAKING = {".".join(place.names[-2:]) for place in _PLACES if place.parameter}


def spare(error: Exception) -> None:
    """Raise AdapterDrift where the adapter caused the exception."""
    if isinstance(error, UsageError | NotAllowed):
        raise error
    if caused_by_us(error):
        why = f"The adapter does not fit: {last_line(error)}"
        raise AdapterDrift(why, _missing(error)) from error


def caused_by_us(error: Exception) -> bool:
    """Whether kvproof raised an exception, or one reports a missing name of the contract."""
    return bool(_missing(error)) or _raised_by_us(error)


@contextmanager
def reading() -> Iterator[None]:
    """Turns each exception of the body into AdapterDrift: the body builds or reads engines."""
    try:
        yield
    except (UsageError, NotAllowed):
        raise
    except Exception as error:  # vLLM is not what the adapter expects
        why = f"The adapter does not fit: {last_line(error)}"
        raise AdapterDrift(why, _missing(error)) from error


def dead_by(error: Exception, owned: Mapping[str, tuple[object, ...]], otherwise: str) -> str:
    """The engine that died: the owner of the innermost method that the exception passed through.
    `owned` has the objects of each engine; `otherwise` is the engine if none of these is found."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        acting = frame.f_locals.get("self")
        for name, things in owned.items():
            if acting is not None and any(acting is thing for thing in things):
                return name
    return otherwise


def place(error: Exception) -> traceback.FrameSummary:
    """Where an exception was raised. A KeyError of a router's parameters belongs to its reader."""
    if isinstance(error, Damage):
        return error.place
    frames = traceback.extract_tb(error.__traceback__)
    read = isinstance(error, KeyError) and frames[-1].name == FakeParams.__missing__.__name__
    return frames[-2 if read else -1]


def _raised_by_us(error: Exception) -> bool:
    last = place(error).filename
    return any(Path(last).is_relative_to(room) for room in _OURS)


def _missing(error: Exception) -> str:
    """The name that an exception reports as missing, if the contract has it."""
    if isinstance(error, AttributeError):
        return _missing_of(error.obj, error.name or "")
    if isinstance(error, ImportError):
        found = _NOT_IN.search(str(error))
        name = found["name"] if found else error.name or ""
        return name if name in _NAMES | _MODULES else ""
    if isinstance(error, TypeError):
        found = _CALLED.match(str(error))
        return _callee(found["callee"]) if found else ""
    return ""


def _missing_of(owner: Any, name: str) -> str:
    """`Class.name`, where an object or class of vLLM lacks a name of the contract."""
    kind = owner if isinstance(owner, type) else type(owner)
    if name not in {touched for _, touched in _OWNED}:
        return ""
    names = [*(each.__name__ for each in kind.__mro__), *sorted(samples.labels(kind))]
    owners = [each for each in names if (each, name) in _OWNED]
    return f"{owners[0]}.{name}" if owners else ""


def _callee(called: str) -> str:
    """A callee that takes other arguments, if the contract has its name."""
    kept = called.removesuffix(".__init__")
    return kept if kept in _TAKING else ""
