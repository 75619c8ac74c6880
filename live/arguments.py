"""The arguments with which vLLM calls a method that kvproof has wrapped.

A wrapper passes on whatever it is given, so that a vLLM whose calls have one more argument runs as
it would without the wrapper. What the wrapper itself needs it reads by the name that vLLM has for
it.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvproof.model.errors import AdapterDrift


class Reads:
    """Reads some arguments of each call of a method of vLLM, by the names that the method's
    interface has for them: the most basic class that declares the method. Raises AdapterDrift where
    the interface has no such parameter, and where a call lacks the argument."""

    def __init__(self, owner: Any, method: str, *names: str) -> None:
        self.entry = f"{type(owner).__name__}.{method}"
        kinds = reversed(type(owner).__mro__)
        declared = next(vars(kind)[method] for kind in kinds if method in vars(kind))
        self.places = {name: at for at, name in enumerate(inspect.signature(declared).parameters)}
        self.names = names
        for name in names:
            if name not in self.places:
                raise self._drift(f"{self.entry} of this vLLM has no parameter {name!r}")

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The arguments, in the order of their names. `args` does not have the object itself."""
        return [self._read(name, args, kwargs) for name in self.names]

    def _read(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        at = self.places[name] - 1  # `self` is the first parameter
        if name in kwargs:
            return kwargs[name]
        if at >= len(args):
            raise self._drift(f"This vLLM calls {self.entry} without {name!r}")
        return args[at]

    def _drift(self, why: str) -> AdapterDrift:
        return AdapterDrift(why, self.entry)


def hooked(
    owner: Any,
    method: str,
    *names: str,
    before: Callable[..., object] = lambda *_: None,
    after: Callable[..., object] = lambda *_: None,
) -> None:
    """Call a function before each call of an object's method, with these arguments of the call, and
    one after it, with its result and then the arguments. Raises AdapterDrift as `Reads` does."""
    call, reads = getattr(owner, method), Reads(owner, method, *names)

    def called(*args: Any, **kwargs: Any) -> Any:
        given = reads(args, kwargs)
        before(*given)
        result = call(*args, **kwargs)
        after(result, *given)
        return result

    setattr(owner, method, called)


class Given:
    """The arguments of calls of a bound method, each found by its parameter's name or position.

    Somebody may have wrapped the method in a function of `*args`, which hides the parameters.
    `first` are the method's first parameters, in vLLM's order, with which such a call is read."""

    def __init__(self, method: Callable[..., Any], *first: str) -> None:
        self.name, parameters = method.__qualname__, inspect.signature(method).parameters
        self.hidden = any(each.kind is each.VAR_POSITIONAL for each in parameters.values())
        self.places = {name: at for at, name in enumerate(first if self.hidden else parameters)}

    def get(self, args: Sequence[Any], kwargs: Mapping[str, Any], name: str, otherwise: Any) -> Any:
        """An argument of a call that may be left out. Raises AdapterDrift where nobody can say
        whether it was given."""
        if name in kwargs:
            return kwargs[name]
        if self.hidden and len(args) > len(self.places):
            why = f"{self.name} hides its parameters, and is called with {len(args)} of them"
            raise AdapterDrift(why, self.name)
        at = self.places.get(name, len(args))
        return args[at] if at < len(args) else otherwise
