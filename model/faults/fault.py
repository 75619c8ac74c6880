"""A fault: a historical mistake, as one replaced rule."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kvproof.model.config import Cluster
from kvproof.model.errors import NAMED, UsageError
from kvproof.model.reference.default_rules import REFERENCE
from kvproof.model.reference.rules import Rules


@dataclass(frozen=True)
class Fault:
    """One replaced rule of the reference.

    `mistake` describes the mistake in one sentence. `breaks` are the ids of the invariants expected
    to find it. `cluster` is the name of the smallest preset in which it has an effect. `concerns`
    returns for a cluster whether the fault can have an effect there; a violation in any other
    cluster has another cause.
    """

    name: str
    origin: str
    mistake: str
    replaces: tuple[str, Callable[..., Any]]
    breaks: tuple[str, ...]
    cluster: str
    trace_events: int
    also_in: tuple[str, ...] = ()
    dies_in: tuple[str, ...] = ()
    refutes: frozenset[str] = frozenset()
    refutes_in_turn: frozenset[str] = frozenset()
    concerns: Callable[[Cluster], bool] = lambda _cluster: True

    def __post_init__(self) -> None:
        REFERENCE.with_rule(*self.replaces)

    @property
    def clusters(self) -> tuple[str, ...]:
        """The presets in which it shows, the smallest first."""
        return (self.cluster, *self.also_in)

    @property
    def all_refuted(self) -> frozenset[str]:
        """The claims about counts that do not hold under it."""
        return self.refutes | self.refutes_in_turn


def rules_with(faults: Iterable[Fault]) -> Rules:
    """The rules with these faults. Raises UsageError if two faults replace the same rule."""
    chosen = list(faults)
    names = [f.replaces[0] for f in chosen]
    if len(set(names)) < len(names):
        raise UsageError(
            f"The faults {', '.join(f.name for f in chosen[:NAMED])} replace the same rule. Use "
            "one fault for each rule."
        )
    return functools.reduce(lambda made, fault: made.with_rule(*fault.replaces), chosen, REFERENCE)
