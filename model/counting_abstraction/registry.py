"""All count-level systems, with their claims."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from kvproof.model import planting
from kvproof.model.arithmetic.system import System
from kvproof.model.counting_abstraction import (
    pool,
    table,
    table_claims,
    table_system,
    transfer,
    transfer_claims,
)

TABLES = ("full", "window", "mamba", "state")
TRANSFERS = ("full", "window", "mamba")


def _table(kind: str) -> System:
    return dataclasses.replace(
        table_system.table_system(kind),
        invariants=table_claims.table_claims(kind),
        parameters=table.TableSizes,
        given=functools.partial(table_claims.sizes_allowed, kind),
    )


def _transfer(kind: str) -> System:
    return dataclasses.replace(
        transfer.transfer_system(kind),
        invariants=transfer_claims.transfer_claims(kind),
        parameters=transfer.TransferSizes,
        given=functools.partial(transfer_claims.sizes_allowed, kind),
    )


MAKERS: dict[str, Callable[[], System]] = {
    **{kind: functools.partial(_table, kind) for kind in TABLES},
    **{f"transfer of {kind}": functools.partial(_transfer, kind) for kind in TRANSFERS},
    "pool": lambda: pool.pool_system(),  # looked up anew, because a fault may replace it
}


@functools.cache
def systems() -> dict[str, System]:
    """The count-level systems, by name."""
    return {name: make() for name, make in MAKERS.items()}


def uses(name: str, function: str) -> bool:
    """Whether a system uses a function, named as in `planting`. Both sides of every condition are
    evaluated, so one evaluation of each action calls all functions that the system uses."""
    own, calls = planting.function_named(function), list[str]()

    def noting(*given: Any, **named: Any) -> Any:
        calls.append(function)
        return own(*given, **named)

    with planting.planted({function: noting}):
        system = MAKERS[name]()
        sizes = system.parameters(*(1 for _ in system.parameters._fields))
        start = system.initial(sizes)
        state = type(start)(*(1 for _ in start))
        for action in system.actions:
            chosen = [1 for _ in action.choices(sizes)]
            action.enabled(sizes, state)
            action.allowed(sizes, state, *chosen)
            action.then(sizes, state, *chosen)
    return bool(calls)


def mistakes_in(name: str) -> frozenset[tuple[str, Callable[..., Any]]]:
    """The wrong functions that are planted now in a system. The proofs of the system depend on no
    other planted function."""
    now = planting.planted_now()
    return frozenset((each, wrong) for each, wrong in now.items() if uses(name, each))
