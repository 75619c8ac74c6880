"""Entries of the contract taken out of the real vLLM, as a release would that renamed them."""

import enum
import functools
import importlib
import inspect
import sys
from pathlib import Path
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

import pytest

from kvproof.live import contract_samples as samples
from kvproof.live.contract.entry import Entry, Place

LIVE = Path(samples.__file__).parent.parent
OURS = str(LIVE)
"""Where the adapter is. Attributes are hidden from it alone: vLLM, which has renamed them
everywhere, finds them."""


def remove(entry: Entry, patch: pytest.MonkeyPatch) -> None:
    """Remove an entry from all its places. What tells that a release does not need it is there."""
    for place in entry.places:
        try:
            if place.absent and not place.parameter:
                _owner(place, place.names)
            else:
                _add_parameter(place, patch) if place.absent else _remove(place, patch)
        except (ImportError, AttributeError):
            assert len(entry.places) > 1, f"{entry.name} is not there"
            assert not place.absent, f"{place.name} does not tell that {entry.name} is there"


def _remove(place: Place, patch: pytest.MonkeyPatch) -> None:
    if not place.names:
        patch.setitem(sys.modules, place.module, None)
    elif place.mentioned:
        _rename_in_code(_owner(place, place.names), place.mentioned, patch)
    elif place.parameter:
        _remove_parameter(place, patch)
    elif not place.module:
        _hide(type(_owner(place, place.names[:-1])), place.names[-1], patch)
    else:
        _remove_symbol(place, patch)


def _owner(place: Place, names: tuple[str, ...]) -> Any:
    """What these names of a place stand for: a class, for names that its code mentions."""
    if place.module:
        return functools.reduce(getattr, names, importlib.import_module(place.module))
    found = functools.reduce(getattr, names[1:], samples.sample(names[0]))
    return type(found) if place.mentioned else found


def _remove_symbol(place: Place, patch: pytest.MonkeyPatch) -> None:
    module, name = importlib.import_module(place.module), place.names[-1]
    if len(place.names) == 1:
        patch.delattr(module, name)
        return
    kind = getattr(module, place.names[0])
    if issubclass(kind, enum.Enum):  # no member can be taken out of an enum
        members = {key: value for key, value in vars(kind).items() if key != name}
        patch.setattr(module, place.names[0], SimpleNamespace(**members))
        return
    declaring = [each for each in kind.__mro__ if name in vars(each)]
    annotating = [each for each in kind.__mro__ if name in vars(each).get("__annotations__", {})]
    if not declaring and not annotating:
        raise AttributeError(name)
    for each in declaring:
        patch.delattr(each, name)
    for each in annotating:
        patch.delitem(each.__annotations__, name)


def _remove_parameter(place: Place, patch: pytest.MonkeyPatch) -> None:
    called = _owner(place, place.names)
    signature = inspect.signature(called)
    left = [p for p in signature.parameters.values() if p.name != place.parameter]
    if len(left) == len(signature.parameters):
        raise AttributeError(place.parameter)

    rest = signature.replace(parameters=left)
    import msgspec  # vLLM's own

    if isinstance(called, type) and not issubclass(called, msgspec.Struct):
        patch.setattr(called, "__signature__", rest, raising=False)
        return

    @functools.wraps(called, updated=())
    def lacking(*args: Any, **kwargs: Any) -> Any:
        if place.parameter in kwargs:
            said = f"{called.__qualname__}() got an unexpected keyword argument"
            raise TypeError(f"{said} {place.parameter!r}")
        return called(*args, **kwargs)

    lacking.__signature__ = rest  # type: ignore[attr-defined]
    owner = _owner(place, place.names[:-1])
    patch.setattr(owner, place.names[-1], lacking)


def _add_parameter(place: Place, patch: pytest.MonkeyPatch) -> None:
    called = _owner(place, place.names)
    signature = inspect.signature(called)
    if place.parameter in signature.parameters:
        return
    added = inspect.Parameter(place.parameter, inspect.Parameter.KEYWORD_ONLY, default=None)
    known = [p for p in signature.parameters.values() if p.name != place.parameter]
    more = signature.replace(parameters=[*known, added])
    patch.setattr(called, "__signature__", more, raising=False)


def _hide(kind: type, name: str, patch: pytest.MonkeyPatch) -> None:
    original = kind.__getattribute__

    def __getattribute__(self: Any, wanted: str) -> Any:  # as Python's own, which has no frame
        frame = sys._getframe(1)
        while frame.f_code.co_filename == __file__ and frame.f_back:  # more than one is hidden
            frame = frame.f_back
        if wanted == name and frame.f_code.co_filename.startswith(OURS):
            raise AttributeError(f"{kind.__name__} has no {name}", name=name, obj=self)
        return original(self, wanted)

    patch.setattr(kind, "__getattribute__", __getattribute__)


def _rename_in_code(kind: type, name: str, patch: pytest.MonkeyPatch) -> None:
    for each in kind.__mro__:
        for value in vars(each).values():
            function = getattr(value, "__func__", getattr(value, "fget", value))
            if isinstance(function, FunctionType) and each.__module__.startswith("vllm"):
                function = inspect.unwrap(function)
                patch.setattr(function, "__code__", _renamed(function.__code__, name))


def _renamed(code: CodeType, name: str) -> CodeType:
    def other(value: Any) -> Any:
        if isinstance(value, CodeType):
            return _renamed(value, name)
        if isinstance(value, tuple):
            return tuple(map(other, value))
        return f"{name}_renamed" if value == name and isinstance(value, str) else value

    return code.replace(co_names=other(code.co_names), co_consts=other(code.co_consts))
