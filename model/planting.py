"""Puts other functions in place of functions of the model, for the time of a run.

A function is named `module:function`, or `module:Class.method`; the module is named below
`kvproof.model`. Other modules of the model may have imported the function by its own name. So it
is replaced everywhere it is bound: in the module that defines it and in each module of the model
that imported it. Nobody has to keep a rule about imports for a fault to be in effect. The modules
of `faults` keep the function itself, so that a fault can call what it replaces. No dict, partial
or default argument holds a function of `REPLACEABLE`: such a holder would call the right one still.
A process that is forked from this one has the same functions in place; one that is started anew has
none.
"""

import contextlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from kvproof.model.errors import UsageError

MODEL = "kvproof.model"
FAULTS = f"{MODEL}.faults"

REPLACEABLE = (
    "arithmetic.counts",
    "block_lists",
    "capacity",
    "counting_abstraction.pool",
    "counting_abstraction.table",
    "counting_abstraction.table_system",
    "counting_abstraction.transfer",
    "draft_memory",
    "group_needs",
    "memory",
    "reference",
    "termination",
)
"""The modules whose functions a fault may replace. The others say what a cluster, a state, an event
or a check is, for the model and for vLLM alike."""

CACHING = ("kvproof.invariants", MODEL, "kvproof.proofs", "kvproof.strategies")
"""The packages whose caches may hold what was computed with a function of the model."""

KEY = "mistakes"
"""The parameter of a cached function that says what is planted. Its cache outlives a fault."""

Replaced = Mapping[str, Callable[..., Any]]
"""The function that takes the place of each named function."""

_PLANTED: dict[str, Callable[..., Any]] = {}
_LOADED: dict[str, Any] = {"count": 0, "names": [], "caches": {}}
"""A snapshot of the loaded modules: their number, the names of the model's modules, and all caches
that were found in `CACHING`, by identity."""


def planted_now() -> dict[str, Callable[..., Any]]:
    """The wrong functions that are in place now, by the name of the function that each replaces."""
    return dict(_PLANTED)


def check(name: str, wrong: Callable[..., Any]) -> None:
    """Check that a function can be replaced by another. Raises UsageError where the model has no
    function of this name in `REPLACEABLE`, where `wrong` does not take the same arguments, or where
    it is itself a function of the model (the two could then not be distinguished)."""
    right = function_named(name)
    if not _within(name.partition(":")[0], REPLACEABLE):
        raise UsageError(
            f"{name} is no function of the model's scheduler. Use one of {', '.join(REPLACEABLE)}."
        )
    if in_the_model(getattr(wrong, "__module__", "")):
        raise UsageError(f"{name} is replaced by a function of the model. Use one of the fault.")
    taken = inspect.signature(right).parameters.values()
    positional = [p for p in taken if p.kind is p.POSITIONAL_OR_KEYWORD]
    required = [p for p in positional if p.default is p.empty]
    keywords = {p.name: None for p in taken if p.kind is p.KEYWORD_ONLY}
    for given in (positional, required):
        try:
            inspect.signature(wrong).bind(*given, **keywords)
        except TypeError as error:
            raise UsageError(
                f"What replaces {name} takes other arguments ({error}). Use those of {name}: "
                f"{', '.join(p.name for p in taken)}."
            ) from error


@contextlib.contextmanager
def planted(replaced: Replaced) -> Iterator[None]:
    """Put these functions in place of the named ones until the block ends in any way."""
    if not replaced:
        yield
        return
    right = {name: function_named(name) for name in replaced}
    before = dict(_PLANTED)
    try:
        _PLANTED.update(replaced)
        _put([(name, right[name], wrong) for name, wrong in replaced.items()])
        yield
    finally:
        _put([(name, wrong, right[name]) for name, wrong in replaced.items()])
        _PLANTED.clear()
        _PLANTED.update(before)


def _put(changes: list[tuple[str, Callable[..., Any], Callable[..., Any]]]) -> None:
    """For each named function: bind the new one wherever the old one is bound. Then empty the
    caches, because what they hold was computed with the old functions."""
    _look_through_loaded()
    for name, _, new in changes:
        setattr(*_owner(name), new)
    instead = {id(old): new for _, old, new in changes}
    for module in (sys.modules[name] for name in _LOADED["names"] if name in sys.modules):
        for bound, value in list(vars(module).items()):
            if id(value) in instead:
                setattr(module, bound, instead[id(value)])
    for cached in _LOADED["caches"].values():
        cached.cache_clear()


def function_named(name: str) -> Callable[..., Any]:
    """The function that has this name now. Raises UsageError where there is none."""
    owner, attribute = _owner(name)
    found: Callable[..., Any] | None = vars(owner).get(attribute)
    if not callable(found):
        raise UsageError(f"{MODEL} has no function {name}. Use module:function.")
    return found


def _owner(name: str) -> tuple[ModuleType | type, str]:
    """The module or the class that has the named function, and its name there."""
    module, _, path = name.partition(":")
    *classes, attribute = path.split(".")
    try:
        owner: Any = importlib.import_module(f"{MODEL}.{module}")
    except ImportError as error:
        raise UsageError(f"{MODEL} has no module {module}. Use module:function.") from error
    for each in classes:
        owner = getattr(owner, each)
    return owner, attribute


def _look_through_loaded() -> None:
    """Find the modules of the model and the caches. Beside live vLLM thousands of modules are
    loaded, so they are looked through only when their number has changed."""
    if _LOADED["count"] == len(sys.modules):
        return
    _LOADED["count"] = len(sys.modules)
    _LOADED["names"] = [name for name in list(sys.modules) if in_the_model(name)]
    caching = [name for name in list(sys.modules) if _within(name, CACHING)]
    for value in (each for name in caching for each in list(vars(sys.modules[name]).values())):
        if _outdated_by_a_fault(value):
            _LOADED["caches"][id(value)] = value


def _outdated_by_a_fault(value: Any) -> bool:
    """Whether a value is a cached function whose arguments do not say what is planted."""
    return hasattr(value, "cache_clear") and KEY not in inspect.signature(value).parameters


def in_the_model(module: str) -> bool:
    """Whether a module is of the model, and not of its faults."""
    return _within(module, (MODEL,)) and not _within(module, (FAULTS,))


def _within(module: str, packages: Sequence[str]) -> bool:
    return any(module == each or module.startswith(f"{each}.") for each in packages)
