"""Fakes: objects of kvproof in place of objects of vLLM.

If vLLM uses an attribute that a fake lacks, this is a gap of the adapter, not a defect of vLLM.
"""

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

from kvproof.live.contract.lookup import last_line
from kvproof.model.errors import AdapterDrift


class Fake:
    """The base class of fakes. It raises AdapterDrift for a missing attribute, for arguments that a
    method does not take, and for any other exception in a method: vLLM would catch another
    exception and treat it as a network failure."""

    def __init_subclass__(cls) -> None:
        for name, value in list(vars(cls).items()):
            if isinstance(value, FunctionType) and not name.startswith("__"):
                setattr(cls, name, _drifting(value, f"{cls.__name__}.{name}"))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)  # Python itself looks for it, and accepts AttributeError
        raise _lacks(self, name)

    def __del__(self) -> None:
        """Do nothing: a fake opens nothing that must be closed."""


class FakeSpace(Fake):
    """A fake with attributes by name."""

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            self.__dict__[name] = _drifting(value, name) if callable(value) else value


class FakeParams(dict[str, Any]):
    """The `kv_transfer_params` that a router sends to an engine. Raises AdapterDrift for a missing
    key, and KeyError for a key that every router leaves out (`left_out`)."""

    left_out: tuple[str, ...] = ()

    def __missing__(self, key: str) -> Any:
        raise KeyError(key) if key in self.left_out else _lacks(self, key)


def unstarted(real: type) -> Any:
    """An object of a class of vLLM whose constructor has not run: it has only the attributes that
    the caller sets."""
    return object.__new__(type(f"Unstarted{real.__name__}", (Fake, real), {}))


def _drifting(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            why = f"vLLM does not use kvproof's stand-in {name} as it was made for"
            raise AdapterDrift(f"{why} ({last_line(error)})", name) from error

    return called


def _lacks(fake: object, name: str) -> AdapterDrift:
    kind = type(fake).__name__.removeprefix("Unstarted").lstrip("_")
    entry = f"{kind}.{name}"
    return AdapterDrift(f"vLLM asks kvproof's stand-in for {kind} for {name!r}", entry)
