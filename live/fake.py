"""Objects of ours that stand where vLLM has its own.

What vLLM asks of them and they lack is a gap of the adapter, and no defect of vLLM.
"""

from typing import Any

from kvproof.model.errors import AdapterDrift


class Fake:
    """A stand-in. Raises AdapterDrift for an attribute that it lacks."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)  # Python itself asks, and takes no for an answer
        raise _lacks(self, name)

    def __del__(self) -> None:
        """Nothing was opened that must be closed."""


class FakeSpace(Fake):
    """Values by name."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class FakeParams(dict[str, Any]):
    """What a router tells an engine. Raises AdapterDrift for a key that it lacks."""

    def __missing__(self, key: str) -> Any:
        raise _lacks(self, key)


def unstarted(real: type) -> Any:
    """An object of a class of vLLM on which no constructor has run: it has what it is given."""
    return object.__new__(type(f"Unstarted{real.__name__}", (Fake, real), {}))


def _lacks(fake: object, name: str) -> AdapterDrift:
    kind = type(fake).__name__.removeprefix("Unstarted").lstrip("_")
    entry = f"{kind}.{name}"
    return AdapterDrift(f"vLLM asks kvproof's stand-in for {kind} for {name!r}", entry)
