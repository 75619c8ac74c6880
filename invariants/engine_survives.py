"""The align split of a Mamba engine asserted that a request has no external tokens. The first load
from P broke the assertion (vllm#42554). A failed assertion in the scheduler ends the whole engine
and every request on it."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, Reason, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import Death
from kvproof.model.step import Step
from kvproof.model.subjects import Subject

DIED = "died"
"""The kind of reason that says how an engine died."""


def died(dead: Death) -> Reason:
    """How the engine died."""
    sentence = "{engine} died: {exception} in {function}" if dead.exception else "{engine} died"
    return reason(
        DIED,
        f"{sentence}: {{message}}" if dead.message else sentence,
        exception=dead.exception,
        function=dead.function,
        message=dead.message,
    )


def check(_cluster: Cluster, step: Step) -> Iterator[Because]:
    """No event ends an engine with an error."""
    for _, engine in step.touched:
        if engine.dead is not None:
            yield because(
                reason(
                    "must_survive",
                    "{event} is an event that every engine must survive",
                    event=type(step.event).__name__,
                ),
                died(engine.dead),
                engine=engine.name,
            )


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
