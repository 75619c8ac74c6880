"""An assertion in the scheduler takes the whole engine down, with every request on it. The align
split asserted that no tokens are external (#42554)."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.events import describe
from kvproof.model.severity import Severity
from kvproof.model.step import Step


def check(_cluster: Cluster, step: Step) -> Iterator[Because]:
    """No event kills an engine."""
    for engine in step.after.engines:
        if engine.dead:
            yield because(
                f"{describe(step.event)} is an event any engine must survive",
                f"{engine.name} died: {engine.dead}",
                engine=engine.name,
            )


INVARIANT = Invariant(
    id="engine_survives",
    name="no event kills an engine",
    origin="vllm#42554",
    severity=Severity.CRASH,
    check=check,
    killed_by="align_split_refuses_external",
)
