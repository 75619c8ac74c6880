"""What a guard is."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kvproof.model.because import Because
from kvproof.model.config import Cluster
from kvproof.model.severity import Severity
from kvproof.model.step import Step


@dataclass(frozen=True)
class Guard:
    """Something that every step of a machine must keep.

    `name` is a sentence that must be true. `part` is the part of vLLM that sees to it. `check`
    yields the reasons for each way in which a step does not keep it.
    """

    id: str
    name: str
    part: str
    severity: Severity
    check: Callable[[Cluster, Step], Iterable[Because]]
