"""All count-level systems, with what is claimed of them."""

import dataclasses
import functools

from kvproof.model.rules import Rules
from kvproof.model.system import System
from kvproof.model.tally import handover, handover_claims, pool, pool_claims, table, table_claims

TABLES = ("full", "window", "mamba", "state")
HANDOVERS = ("full", "window", "mamba")


def _table(kind: str, rules: Rules) -> System:
    return dataclasses.replace(
        table.table_system(kind, rules),
        invariants=table_claims.table_claims(kind),
        parameters=table.Sizes,
        given=functools.partial(table_claims.sizes_allowed, kind),
    )


def _handover(kind: str, rules: Rules) -> System:
    return dataclasses.replace(
        handover.handover_system(kind, rules),
        invariants=handover_claims.handover_claims(kind),
        parameters=handover.Sizes,
        given=functools.partial(handover_claims.sizes_allowed, kind),
    )


def _pool(rules: Rules) -> System:
    return dataclasses.replace(
        pool.pool_system(rules),
        invariants=pool_claims.pool_claims(),
        parameters=pool.Sizes,
        given=pool_claims.sizes_allowed,
    )


@functools.lru_cache(maxsize=16)
def systems(rules: Rules) -> dict[str, System]:
    """The count-level systems under these rules, by name."""
    found = (
        *(_table(kind, rules) for kind in TABLES),
        *(_handover(kind, rules) for kind in HANDOVERS),
        _pool(rules),
    )
    return {system.name: system for system in found}
