"""What an invariant is, and how it is checked."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from kvproof.model.because import Because
from kvproof.model.config import Cluster
from kvproof.model.finding import Finding
from kvproof.model.severity import Severity
from kvproof.model.state import Engine, State
from kvproof.model.step import Step

Check: TypeAlias = Callable[[Cluster, Step], Iterable[Because]]
"""Yields the reasons for each way in which the invariant does not hold after a step."""


@dataclass(frozen=True)
class EachEngine:
    """The check of something that every engine must keep by itself. A search asks it once of each
    distinct engine."""

    judge: Callable[[Cluster, Engine], Iterable[Because]]

    def __call__(self, cluster: Cluster, step: Step) -> Iterator[Because]:
        """Ask it of the engines after a step."""
        for engine in step.after.engines:
            yield from self.judge(cluster, engine)


@dataclass(frozen=True)
class EachState:
    """The check of something that can be seen of a state. A search asks it once of each distinct
    state; any other check is asked of every step."""

    judge: Callable[[Cluster, State], Iterable[Because]]

    def __call__(self, cluster: Cluster, step: Step) -> Iterable[Because]:
        """Ask it of the state after a step."""
        return self.judge(cluster, step.after)


Margin: TypeAlias = Callable[[Cluster, State], int | None]
"""How far a state is from breaking the invariant, as a count; None where nothing can break it."""


@dataclass(frozen=True)
class Invariant:
    """One invariant.

    `name` is a sentence that must be true. `kind` is `always` (checked after every step) or
    `eventually` (checked on runs and graphs, by `strategies`). `severity` is None where nobody can
    say what a user would feel; of the invariants in the registry everybody can. `killed_by`
    names a fault that breaks it.
    """

    id: str
    name: str
    origin: str
    severity: Severity | None
    check: Check
    killed_by: str
    kind: str = "always"
    margin: Margin | None = None


def broken(cluster: Cluster, step: Step, invariants: Iterable[Invariant]) -> Iterator[Finding]:
    """The findings after one step."""
    for invariant in invariants:
        for reasons, about in invariant.check(cluster, step):
            yield Finding(invariant.id, reasons, about)
