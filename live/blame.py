"""Decides who caused an exception: kvproof, or vLLM and the connector in it. Every driver asks
here.

kvproof caused an exception that its own code raises, that tells its own code of a missing name or
argument, that names an attribute or argument that one of its fakes lacks, or that says that an
object of kvproof has the wrong type. The object that it stands for might have the right one, and
nobody can say whether vLLM gave it to the wrong function: such a run says nothing, and so its
verdict is UNKNOWN. What vLLM's code misses in vLLM is a mistake of vLLM, also where the contract
has the name: who renames something, and forgets one place, has broken it. An attribute that the
constructor of vLLM should have set, as that of the engine core, is vLLM's. Any other exception is
the death of an engine, or of a connector in it. (Some fakes raise AdapterDrift themselves for
missing attributes.) What the device of the connector kit raises is meant for the connector: a store
that fails, a wait without end.
"""

import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from kvproof.live import contract_samples as samples
from kvproof.live.contract.lookup import last_line
from kvproof.live.contract.table import TABLE
from kvproof.live.death import Damage, place
from kvproof.model.errors import AdapterDrift, NotAllowed, UsageError
from kvproof.model.raised import frames, places

_ROOT = Path(__file__).parent.parent
_DEVICE = _ROOT / "live" / "fakes"

STAND_INS = "kvproof.live.fakes.", "kvproof.live.core."
"""The beginnings of the names of the modules with fakes, whose functions and objects take the place
of vLLM's."""

_LOOKUPS = ("__getattr__", "__getattribute__")
_LIBRARY = ("<frozen ", dataclasses.__file__, importlib.__file__)
_PASSES_ON = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS

_CALLED = re.compile(r"(?P<callee>[\w.<>]+)\(\) ")
_OF_US = re.compile(r"<class 'kvproof\.(?:\w+\.)*(?P<kind>\w+)'>")
_NOT_TAKEN = re.compile(r"unexpected keyword argument '(?P<name>\w+)'")
_NOT_IN = re.compile(r"cannot import name '(?P<name>\w+)'")

_PLACES = [place for entry in TABLE for place in entry.places]
_OWNED = {(place.owner, place.mentioned or place.names[-1]) for place in _PLACES if place.names}
_MODULES = {place.module for place in _PLACES}
_NAMES = {place.names[0] for place in _PLACES if place.module and place.names}
_TAKING = {(".".join(place.names[-2:]), place.parameter) for place in _PLACES if place.parameter}


def is_ours(error: BaseException) -> bool:
    """Whether kvproof caused an exception, so that it says nothing of vLLM."""
    return bool(_lacking(error)) or _raised_by_us(error)


def is_refusal(error: Exception) -> bool:
    """Whether an exception refuses on purpose. An assertion, a missing key, or a call without end
    does not."""
    mistakes = AssertionError | LookupError | AttributeError | TypeError | Damage
    return not isinstance(error, mistakes)


def is_mistake(error: Exception) -> bool:
    """Whether vLLM raised an exception by mistake, and not kvproof, and not on purpose."""
    return not is_ours(error) and not is_refusal(error)


def spare(error: Exception) -> None:
    """Raise AdapterDrift where kvproof caused the exception."""
    if isinstance(error, UsageError | NotAllowed):
        raise error
    if is_ours(error):
        why = f"The adapter does not fit: {last_line(error)}"
        raise AdapterDrift(why, _lacking(error) or _missing(error)) from error


@contextmanager
def reading() -> Iterator[None]:
    """Turn each exception of the block, which builds or reads engines, into AdapterDrift."""
    try:
        yield
    except (UsageError, NotAllowed):
        raise
    except Exception as error:  # vLLM is not what the adapter expects
        why = f"The adapter does not fit: {last_line(error)}"
        raise AdapterDrift(why, _missing(error)) from error


def dead_by(error: Exception, owned: Mapping[str, tuple[object, ...]], otherwise: str) -> str:
    """The engine that died: the owner of the innermost method that the exception passed through.
    `owned` has the objects of each engine; if the exception passed through none of them, the engine
    is `otherwise`."""
    for frame in reversed(frames(error)):
        acting = frame.f_locals.get("self")
        for name, things in owned.items():
            if acting is not None and any(acting is thing for thing in things):
                return name
    return otherwise


def went_through(error: BaseException, file: str | None) -> bool:
    """Whether an exception went through a function of this file."""
    return any(each.filename == file for each in places(error))


def _raised_by_us(error: BaseException) -> bool:
    raised = Path(_asking(error) or place(error).filename)
    return raised.is_relative_to(_ROOT) and not raised.is_relative_to(_DEVICE)


def _asking(error: BaseException) -> str:
    """The file of the function that asked for a name that is missing, or passed arguments that are
    not taken; empty for any other exception. What a function looks up or passes on for its caller
    (`__getattr__`, a hook around a method of vLLM, the standard library), the caller asks for."""
    called = isinstance(error, TypeError) and _CALLED.match(str(error))
    if not (called or isinstance(error, AttributeError | ImportError)):
        return ""
    codes = [frame.f_code for frame in frames(error)]
    asking = (
        each.co_filename
        for each in reversed(codes)
        if each.co_name not in _LOOKUPS
        and not each.co_filename.startswith(_LIBRARY)
        and not (called and each.co_flags & _PASSES_ON == _PASSES_ON)
    )
    return next(asking, "")


def _lacking(error: BaseException) -> str:
    """The attribute that vLLM looks for and a fake lacks, or the function of a fake that does not
    take vLLM's arguments: `Class.name`."""
    if isinstance(error, AttributeError) and type(error.obj).__module__.startswith(STAND_INS):
        if _is_set_by_vllm(type(error.obj), error.name or ""):
            return ""
        return f"{type(error.obj).__name__}.{error.name}"
    if isinstance(error, TypeError) and (found := _CALLED.match(str(error))):
        called = found["callee"].partition(".<locals>")[0]
        return called if called in _stand_ins() else ""
    if isinstance(error, TypeError) and (found := _OF_US.search(str(error))):
        return found["kind"]
    return ""


def _is_set_by_vllm(kind: type, name: str) -> bool:
    """Whether vLLM has to set this attribute of a stand-in: it has a constructor of vLLM, as the
    engine core has, and none of the functions that do not run here names the attribute. These are
    the methods that the stand-in replaces, and the static ones, which make an engine in a process
    of its own."""
    constructor = inspect.getattr_static(kind, "__init__")
    if not getattr(constructor, "__module__", "").startswith("vllm."):
        return False
    bases = [each for each in kind.__mro__ if each.__module__.startswith("vllm.")]
    unused = [
        inspect.unwrap(function)
        for base in bases
        for of, made in vars(base).items()
        if inspect.isfunction(function := getattr(made, "__func__", made))
        if of in vars(kind) or isinstance(made, staticmethod)
    ]
    return not any(name in _named_in(function.__code__) for function in unused)


def _named_in(code: CodeType) -> Iterator[str]:
    """The names that a function uses, with those of the functions in it."""
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _named_in(each)


def _stand_ins() -> frozenset[str]:
    """The names of all functions of fakes, as Python writes them in its errors."""
    modules = [each for name, each in sys.modules.items() if name.startswith(STAND_INS)]
    return frozenset(name for module in modules for name in _functions(module, module.__name__))


def _functions(owner: ModuleType | type, module: str) -> Iterator[str]:
    made: Any
    for made in vars(owner).values():
        made = getattr(made, "__func__", made)  # of a method of the class
        if getattr(made, "__module__", "") != module:
            continue
        if inspect.isfunction(made):
            yield made.__qualname__
        elif inspect.isclass(made):
            yield from (made.__qualname__, f"{made.__qualname__}.__init__")
            yield from _functions(made, module)


def _missing(error: BaseException) -> str:
    """The name that an exception reports as missing, if the contract has it."""
    if isinstance(error, AttributeError):
        return _missing_of(error.obj, error.name or "")
    if isinstance(error, ImportError):
        found = _NOT_IN.search(str(error))
        name = found["name"] if found else error.name or ""
        return name if name in _NAMES | _MODULES else ""
    if isinstance(error, TypeError):
        found, taken = _CALLED.match(str(error)), _NOT_TAKEN.search(str(error))
        called = found["callee"].removesuffix(".__init__") if found else ""
        return called if taken and (called, taken["name"]) in _TAKING else ""
    return ""


def _missing_of(owner: Any, name: str) -> str:
    """`Class.name`, where an object or class of vLLM lacks a name of the contract."""
    kind = owner if isinstance(owner, type) else type(owner)
    if name not in {touched for _, touched in _OWNED}:
        return ""
    names = [*(each.__name__ for each in kind.__mro__), *sorted(samples.labels(kind))]
    owners = [each for each in names if (each, name) in _OWNED]
    return f"{owners[0]}.{name}" if owners else ""
