"""The type of a guard."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kvproof.model.because import Because
from kvproof.model.config import Cluster
from kvproof.model.needs import Need, Needs
from kvproof.model.severity import Severity
from kvproof.model.step import Step
from kvproof.model.subjects import Subject


@dataclass(frozen=True)
class Guard:
    """A rule that every step of a machine must keep.

    `name` is a sentence that must be true. `part` is the part of vLLM that is responsible. `check`
    yields the reasons for each violation by a step. `needs` and `subjects` are as in an invariant:
    what the check looks at, and what a reproducer can assert.
    """

    id: str
    name: str
    part: str
    severity: Severity
    check: Callable[[Cluster, Step], Iterable[Because]]
    needs: Needs = (Need.STATE,)
    subjects: tuple[Subject, ...] = ()
