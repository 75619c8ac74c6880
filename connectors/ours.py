"""Whose mistake an exception is: that of vLLM with its connector, or of the kit, which does not fit
this vLLM."""

import inspect
import sys
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

OURS = tuple(Path(__file__).parents[1] / room for room in ("connectors", "live", "model"))
"""Folders of kvproof: an exception that is raised there is a mistake of the kit."""

DEVICE = Path(__file__).parent / "device"
OF_DEVICE = "kvproof.connectors.device."


def is_ours(error: Exception) -> bool:
    """Whether an exception was raised in a file of kvproof, or because the device lacks what vLLM
    looks for, or does not take what vLLM gives it: then it is a mistake of the kit. What the device
    raises is for the connector: a store that fails, a wait without end."""
    if isinstance(error, AttributeError) and type(error.obj).__module__.startswith(OF_DEVICE):
        return True
    if isinstance(error, TypeError) and _called(error) in _stand_ins():
        return True
    raised = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    if raised.is_relative_to(DEVICE):
        return False
    return any(raised.is_relative_to(room) for room in OURS)


def is_refusal(error: Exception) -> bool:
    """Whether a connector that cannot be made says so on purpose. An assertion, or a key that is
    missing, does not."""
    return not isinstance(error, AssertionError | LookupError | AttributeError | TypeError)


def _called(error: TypeError) -> str:
    """The function that a call does not fit, as Python names it: `StoreClient.put`. Empty for
    another error."""
    name, call, _ = str(error).partition("() ")
    return name.partition(".<locals>")[0] if call else ""


@cache
def _stand_ins() -> frozenset[str]:
    """The names of all functions of the device."""
    device = [each for name, each in sys.modules.items() if name.startswith(OF_DEVICE)]
    return frozenset(name for module in device for name in _functions(module, module.__name__))


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
