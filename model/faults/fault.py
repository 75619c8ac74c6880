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

    `breaks` are the ids of the invariants expected to find it; `cluster` names the smallest preset
    in which it shows; `mistake` says in one sentence what was done wrong. `concerns` says of a
    cluster whether the fault can make a difference there; what breaks elsewhere is not its doing.
    """

    name: str
    origin: str
    mistake: str
    replaces: tuple[str, Callable[..., Any]]
    breaks: tuple[str, ...]
    cluster: str
    concerns: Callable[[Cluster], bool] = lambda _cluster: True

    def __post_init__(self) -> None:
        REFERENCE.with_rule(*self.replaces)


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
