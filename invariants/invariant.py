"""What an invariant is, and how it is checked."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from kvproof.model.config import Cluster
from kvproof.model.step import Step

Reasons: TypeAlias = tuple[str, ...]
"""Facts that contradict each other, in the order in which a reader should hear them."""


class Finding(NamedTuple):
    """An invariant that does not hold, and why."""

    invariant: str
    reasons: Reasons

    @property
    def sentence(self) -> str:
        """The reasons as one sentence."""
        return ", yet ".join(("; ".join(self.reasons[:-1]) or "so", self.reasons[-1]))


Check: TypeAlias = Callable[[Cluster, Step], Iterable[Reasons]]
"""Yields the reasons for each way in which the invariant does not hold after a step."""

Margin: TypeAlias = Callable[[Cluster, Step], int | None]
"""How far the invariant is from being broken, as a count; None where it says nothing."""


@dataclass(frozen=True)
class Invariant:
    """One invariant.

    `name` is a sentence that must be true. `kind` is `always` (checked after every step) or
    `eventually` (checked on runs and graphs, by `strategies`). `teeth` names a fault that breaks
    it.
    """

    id: str
    name: str
    born_of: str
    check: Check
    teeth: str
    kind: str = "always"
    margin: Margin | None = None


def broken(cluster: Cluster, step: Step, invariants: Iterable[Invariant]) -> Iterator[Finding]:
    """The findings after one step."""
    for invariant in invariants:
        for reasons in invariant.check(cluster, step):
            yield Finding(invariant.id, reasons)
