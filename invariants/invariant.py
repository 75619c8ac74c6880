"""The types of an invariant and of a finding."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from kvproof.model.because import Because
from kvproof.model.config import Cluster
from kvproof.model.finding import Finding
from kvproof.model.needs import Need, Needs
from kvproof.model.severity import Severity
from kvproof.model.state import Engine, State
from kvproof.model.step import Step
from kvproof.model.subjects import Subject

Check: TypeAlias = Callable[[Cluster, Step], Iterable[Because]]
"""Yields the reasons for each violation of the invariant by a step."""


@dataclass(frozen=True)
class EachEngine:
    """A check that every engine must pass by itself. A search runs it once for each distinct
    engine. A dead engine is not checked: it stopped inside a step, so its blocks may be assigned
    and not yet written. `engine_survives` reports the death."""

    judge: Callable[[Cluster, Engine], Iterable[Because]]

    def __call__(self, cluster: Cluster, step: Step) -> Iterator[Because]:
        """Check the engines after a step."""
        for engine in step.after.engines:
            yield from self.of(cluster, engine)

    def of(self, cluster: Cluster, engine: Engine) -> Iterable[Because]:
        """Check one engine."""
        return () if engine.dead else self.judge(cluster, engine)


@dataclass(frozen=True)
class EachState:
    """A check of a single state. A search runs it once for each distinct state, and any other check
    for each step."""

    judge: Callable[[Cluster, State], Iterable[Because]]

    def __call__(self, cluster: Cluster, step: Step) -> Iterable[Because]:
        """Check the state after a step."""
        return self.judge(cluster, step.after)


Margin: TypeAlias = Callable[[Cluster, Engine], int | None]
"""The distance of an engine from a violation, as a count; None if nothing of the engine can violate
the invariant. A search asks it once for each distinct engine."""


@dataclass(frozen=True)
class Invariant:
    """One invariant.

    `name` is a sentence that must be true. `kind` is `always` (checked after every step) or
    `eventually` (checked on runs and graphs, by `strategies`). `severity` is None if the effect on
    a user is unknown; every invariant in the registry has a severity. `killed_by` names a fault
    that violates the invariant. `needs` says what the check looks at: a machine that does not show
    this is not asked. `subjects` are what a reproducer can assert, the nearest to the invariant
    first.
    """

    id: str
    name: str
    origin: str
    severity: Severity | None
    check: Check
    killed_by: str
    kind: str = "always"
    margin: Margin | None = None
    needs: Needs = (Need.STATE,)
    subjects: tuple[Subject, ...] = ()


def broken(cluster: Cluster, step: Step, invariants: Iterable[Invariant]) -> Iterator[Finding]:
    """The findings after one step."""
    for invariant in invariants:
        try:
            for judged in invariant.check(cluster, step):
                yield Finding(invariant.id, judged.reasons, judged.about)
        except Exception as error:
            error.add_note(f"in the check {invariant.id}")
            raise
