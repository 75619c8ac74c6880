"""All count-level systems, with their claims."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from kvproof.model.arithmetic.system import System
from kvproof.model.counting_abstraction import (
    pool,
    pool_claims,
    table,
    table_claims,
    table_system,
    transfer,
    transfer_claims,
)
from kvproof.model.reference.default_rules import REFERENCE
from kvproof.model.reference.rules import Rules

TABLES = ("full", "window", "mamba", "state")
TRANSFERS = ("full", "window", "mamba")


def _table(kind: str, rules: Rules) -> System:
    return dataclasses.replace(
        table_system.table_system(kind, rules),
        invariants=table_claims.table_claims(kind),
        parameters=table.Sizes,
        given=functools.partial(table_claims.sizes_allowed, kind),
    )


def _transfer(kind: str, rules: Rules) -> System:
    return dataclasses.replace(
        transfer.transfer_system(kind, rules),
        invariants=transfer_claims.transfer_claims(kind),
        parameters=transfer.Sizes,
        given=functools.partial(transfer_claims.sizes_allowed, kind),
    )


def _pool(rules: Rules) -> System:
    return dataclasses.replace(
        pool.pool_system(rules),
        invariants=pool_claims.pool_claims(),
        parameters=pool.Sizes,
        given=pool_claims.sizes_allowed,
    )


MAKERS: dict[str, Callable[[Rules], System]] = {
    **{kind: functools.partial(_table, kind) for kind in TABLES},
    **{f"transfer of {kind}": functools.partial(_transfer, kind) for kind in TRANSFERS},
    "pool": _pool,
}


@functools.lru_cache(maxsize=16)
def systems(rules: Rules) -> dict[str, System]:
    """The count-level systems under these rules, by name."""
    return {name: make(rules) for name, make in MAKERS.items()}


class _RecordingRules:
    """The rules of the spec; records which of them are used."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.names.add(name)
        return getattr(REFERENCE, name)


@functools.cache
def rules_used(name: str) -> frozenset[str]:
    """The names of the rules that a system uses. Both sides of every condition are evaluated, so
    one evaluation of each action uses all of its rules."""
    rules = _RecordingRules()
    system = MAKERS[name](rules)  # type: ignore[arg-type]
    sizes = system.parameters(*(1 for _ in system.parameters._fields))
    start = system.initial(sizes)
    state = type(start)(*(1 for _ in start))
    for action in system.actions:
        chosen = [1 for _ in action.choices(sizes)]
        action.enabled(sizes, state)
        action.allowed(sizes, state, *chosen)
        action.then(sizes, state, *chosen)
    return frozenset(rules.names)


def relevant(name: str, rules: Rules) -> Rules:
    """These rules where a system uses them, the rules of the spec elsewhere."""
    for rule in sorted(rules_used(name)):
        if getattr(rules, rule) != getattr(REFERENCE, rule):
            break
    else:
        return REFERENCE
    return dataclasses.replace(REFERENCE, **{n: getattr(rules, n) for n in rules_used(name)})
