"""The align split of a Mamba engine asserted that a request has no external tokens. The first load
from P broke the assertion (vllm#42554). A failed assertion in the scheduler ends the whole engine
and every request on it."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import About, Because
from kvproof.model.config import Cluster
from kvproof.model.events import describe
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.step import Step
from kvproof.model.subjects import Subject


def check(_cluster: Cluster, step: Step) -> Iterator[Because]:
    """No event ends an engine with an error."""
    for engine in step.after.engines:
        if engine.dead:
            survivable = f"{describe(step.event)} is an event that every engine must survive"
            death = f"{engine.name} died: {engine.dead}"  # vLLM's own words, as they are
            yield Because((survivable, death), About(engine=engine.name))


INVARIANT = Invariant(
    id="engine_survives",
    name="an engine survives every event",
    origin="vllm#42554",
    severity=Severity.CRASH,
    check=check,
    needs=(Need.DEATHS,),
    subjects=(Subject.RAISES,),
    killed_by="align_split_refuses_external",
)
