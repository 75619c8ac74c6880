"""Look up the symbols that the contract names. Nothing is called."""

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

from kvproof.live.contract.entry import Place

Objects = Callable[[str], Any]
"""Returns a real object of the class with this name. Raises Missing if there is none."""


class Missing(Exception):
    """The symbol does not exist. The message has a reason if one is known."""


def first_place(places: Iterable[Place], objects: Objects) -> tuple[Place | None, str]:
    """The first of these places that exists, else None with a reason if one is known."""
    why = ""
    for place in places:
        try:
            _look(place, objects)
        except Missing as missing:
            why = why or str(missing)
        else:
            return place, ""
    return None, why


def _look(place: Place, objects: Objects) -> None:
    """Look up a place. Raises Missing if it does not exist."""
    try:
        _find(place, objects)
    except Missing as missing:
        if not place.absent or str(missing):
            raise
    else:
        if place.absent:
            raise Missing


def _find(place: Place, objects: Objects) -> None:
    found, names = _start(place, objects)
    if place.mentioned:
        if place.mentioned not in set(mentioned(_after(found, names))):
            raise Missing
        return
    if not place.parameter:
        _after(found, names, last_may_be_declared=True)
    elif not may_take(_after(found, names), place.parameter):
        raise Missing


def _start(place: Place, objects: Objects) -> tuple[Any, tuple[str, ...]]:
    """The module or the real object with which a place begins, and the names to follow from
    there."""
    if place.module:
        return _module(place.module), place.names
    found = objects(place.names[0])
    return (type(found) if place.mentioned else found), place.names[1:]


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:  # a module may raise anything when it is imported
        raise Missing("" if not_there(error, name) else last_line(error)) from error


def not_there(error: BaseException, name: str) -> bool:
    """Whether an ImportError says that the module itself, or a package that contains it, does not
    exist."""
    missing = getattr(error, "name", None) or ""
    return isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{missing}.")


def last_line(error: BaseException) -> str:
    """An exception in one line: its class and the last line of its message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__


def _after(found: Any, names: tuple[str, ...], last_may_be_declared: bool = False) -> Any:
    for index, name in enumerate(names):
        last = index + 1 == len(names)
        if last and last_may_be_declared and inspect.isclass(found) and _declared(found, name):
            return None
        try:
            found = getattr(found, name)
        except AttributeError:
            raise Missing from None
    return found


def _declared(found: type, name: str) -> bool:
    """Whether a class has a field of this name, with or without a default."""
    return any(name in vars(kind).get("__annotations__", {}) for kind in found.__mro__)


def may_take(called: Any, name: str) -> bool:
    """Whether something can be called with an argument of this name. A wrapper with `**kwargs`
    passes on what it gets. Raises Missing where its parameters cannot be read."""
    try:
        parameters = inspect.signature(called).parameters
    except (TypeError, ValueError):
        raise Missing("its parameters cannot be read") from None
    return name in parameters or any(
        each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()
    )


def mentioned(kind: type) -> Iterator[str]:
    """All names and strings in the code of a vLLM class and its vLLM base classes."""
    for each in kind.__mro__:
        if each.__module__.split(".")[0] == "vllm":
            for value in vars(each).values():
                function = getattr(value, "__func__", getattr(value, "fget", value))
                if isinstance(function, FunctionType):
                    yield from _in_code(inspect.unwrap(function).__code__)


def _in_code(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _in_code(constant)
        elif isinstance(constant, str):
            yield constant
        elif isinstance(constant, tuple):
            yield from (part for part in constant if isinstance(part, str))
