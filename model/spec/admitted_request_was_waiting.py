"""If a request is admitted while it holds blocks, it loses these blocks. If it is admitted while an
earlier token is pending, this token gets a wrong position (vllm#48245)."""

from collections.abc import Iterator

from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.events import Admit, FinishLoad, Schedule
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.spec.changes import scheduled
from kvproof.model.spec.guard import Guard
from kvproof.model.state import FAILED, LATE, LOADED, PREEMPTED, WAITING
from kvproof.model.step import Step


def check(_cluster: Cluster, step: Step) -> Iterator[Because]:
    """An admitted request waits without blocks and without a pending token, and a finished load has
    ended."""
    engines = scheduled(step)
    if engines is None or not isinstance(step.event, Schedule):
        return
    before = engines.before
    for choice in step.event.chose or ():
        request = before.find(choice.request)
        if request is None or not isinstance(choice, Admit | FinishLoad):
            continue
        status = f"{request.id} on {before.name} is {request.status}"
        late = any(f.fate == LATE for f in before.flights(request.id))
        wrong = ""
        if isinstance(choice, FinishLoad) and request.status not in (LOADED, FAILED):
            wrong = "the step finishes its load"
        if isinstance(choice, Admit) and request.status not in (WAITING, PREEMPTED, FAILED):
            wrong = "it is admitted"
        if isinstance(choice, Admit) and late:
            status, wrong = f"an earlier token of {request.id} is pending", "it is admitted"
        if wrong:
            yield because(status, wrong, engine=before.name, request=request.id)


GUARD = Guard(
    id="admitted_request_was_waiting",
    name=(
        "a request is admitted only while it waits, and its load is finished only after the load "
        "has ended"
    ),
    part="scheduler",
    severity=Severity.WRONG_TOKENS,
    check=check,
    needs=(Need.ADMITTED,),
)
