"""What a fault is: a historical mistake as one replaced rule."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kvproof.model.config import Cluster
from kvproof.model.errors import UsageError
from kvproof.model.reference.default_rules import REFERENCE
from kvproof.model.reference.rules import Rules


@dataclass(frozen=True)
class Fault:
    """One rule of the spec, replaced.

    `mistake` says in one sentence what was done wrong. `breaks` are the ids of the invariants that
    it breaks; `cluster` names the smallest preset in which it shows, after `trace_events` events,
    and `also_in` presets for those of `breaks` that do not show there. `concerns` says of a cluster
    whether the fault can make a difference there; what breaks elsewhere is not its doing.

    An engine of vLLM that dies of it dies in one of the functions `dies_in`: a death elsewhere
    shows another defect. `refutes` are the claims about counts that a step under the fault breaks,
    and `refutes_in_turn` those that a step keeps where all the others hold.
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
    """The spec with these faults switched on. Raises UsageError where two replace the same rule."""
    chosen = list(faults)
    names = [f.replaces[0] for f in chosen]
    if len(set(names)) < len(names):
        raise UsageError(
            f"The faults {', '.join(f.name for f in chosen)} replace the same rule. "
            "Write one fault for each rule."
        )
    return functools.reduce(lambda r, f: r.with_rule(*f.replaces), chosen, REFERENCE)
