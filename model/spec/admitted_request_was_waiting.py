"""If a request is admitted while it holds blocks, it loses these blocks. If it is admitted while an
earlier token is pending, this token gets a wrong position (vllm#48245)."""

from collections.abc import Iterator

from kvproof.model.because import Because, Reason, because, reason
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
    before, admitted = engines.before, reason("is_admitted", "it is admitted")
    for choice in step.event.chose or ():
        request = before.find(choice.request)
        if request is None or not isinstance(choice, Admit | FinishLoad):
            continue
        status = reason("has_status", "{request} on {engine} is {status}", status=request.status)
        late = any(f.fate == LATE for f in before.flights(request.id))
        wrong: Reason | None = None
        if isinstance(choice, FinishLoad) and request.status not in (LOADED, FAILED):
            wrong = reason("load_is_finished", "the step finishes its load")
        if isinstance(choice, Admit) and request.status not in (WAITING, PREEMPTED, FAILED):
            wrong = admitted
        if isinstance(choice, Admit) and late:
            status = reason("token_is_pending", "an earlier token of {request} is pending")
            wrong = admitted
        if wrong is not None:
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
