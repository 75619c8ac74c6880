"""How a mistake is put into real vLLM: another line of a function, another function, or something
done around it. A place is `module:function` or `module:Class.method`."""

import inspect
import textwrap
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import pytest

from kvproof.live.contract_check import check

Change = Callable[[pytest.MonkeyPatch], None]


class Mistake(NamedTuple):
    """A change of vLLM, the check that finds it, and what shows it. Each library says what that
    is."""

    change: Change
    finds: str
    shown_by: Any = None

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Put it into vLLM, after the contract is checked: what is put there in the place of a
        method need not name its parameters."""
        check()
        self.change(patch)


CORE = "vllm.v1.core"
POOL = f"{CORE}.block_pool:BlockPool"
MANAGER = f"{CORE}.kv_cache_manager:KVCacheManager"
COORDINATOR = f"{CORE}.kv_cache_coordinator"
SINGLE = f"{CORE}.single_type_kv_cache_manager:SingleTypeKVCacheManager"
MAMBA = f"{CORE}.single_type_kv_cache_manager:MambaManager"
WINDOW = f"{CORE}.single_type_kv_cache_manager:SlidingWindowManager"
SCHEDULER = f"{CORE}.sched.scheduler:Scheduler"
ASYNC = f"{CORE}.sched.async_scheduler:AsyncScheduler"
NIXL = "vllm.distributed.kv_transfer.kv_connector.v1.nixl"
NIXL_SCHEDULER = f"{NIXL}.base_scheduler:NixlBaseConnectorScheduler"
NIXL_WORKER = f"{NIXL}.base_worker:NixlBaseConnectorWorker"


def rewritten(function: Callable[..., Any], old: str, new: str) -> Callable[..., Any]:
    """A function of vLLM with one line of its source replaced."""
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1
    names: dict[str, Any] = {}
    exec(source.replace(old, new), function.__globals__, names)
    return names[function.__name__]


def _found(place: str) -> tuple[Any, str]:
    """The module or the class of a place, and the name in it."""
    module, _, names = place.partition(":")
    *inner, name = names.split(".")
    owner = import_module(module)
    for each in inner:
        owner = getattr(owner, each)
    return owner, name


def line(place: str, old: str, new: str) -> Change:
    """Another line in a function."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        owner, name = _found(place)
        patch.setattr(owner, name, rewritten(getattr(owner, name), old, new))

    return plant


def instead(place: str, wrong: Any) -> Change:
    """Something else in the place of a function or an attribute."""
    return lambda patch: patch.setattr(*_found(place), wrong)


def always(place: str, value: Any) -> Change:
    """An attribute that has this value whatever is assigned to it."""
    kept = property(lambda _: value, lambda *_: None)
    return lambda patch: patch.setattr(*_found(place), kept, raising=False)


def nothing(place: str) -> Change:
    """A function that does nothing."""
    return instead(place, lambda *_, **__: None)


def around(place: str, wrong: Callable[..., Any]) -> Change:
    """Another function, which is given the right one first."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        owner, name = _found(place)
        kept = inspect.getattr_static(owner, name)
        bound = isinstance(kept, classmethod | staticmethod)
        right = kept.__func__ if bound else getattr(owner, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            return wrong(right, *args, **kwargs)

        patch.setattr(owner, name, type(kept)(called) if bound else called)

    return plant


def both(*changes: Change) -> Change:
    """Several changes at once."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        for each in changes:
            each(patch)

    return plant
