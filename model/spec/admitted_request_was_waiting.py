"""A request that is admitted while it holds blocks loses them, and one whose earlier token is still
on its way gets that token in the wrong place (vllm#48245)."""

from collections.abc import Iterator

from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.events import Admit, FinishLoad, Schedule
from kvproof.model.severity import Severity
from kvproof.model.spec.changes import scheduled
from kvproof.model.spec.guard import Guard
from kvproof.model.state import FAILED, LATE, LOADED, PREEMPTED, WAITING
from kvproof.model.step import Step


def check(_cluster: Cluster, step: Step) -> Iterator[Because]:
    """A request that is admitted waits without blocks, and a load that is taken over has ended."""
    engines = scheduled(step)
    if engines is None or not isinstance(step.event, Schedule):
        return
    before = engines.before
    for choice in step.event.chose or ():
        request = before.find(choice.request)
        if request is None or not isinstance(choice, Admit | FinishLoad):
            continue
        said = f"{request.id} on {before.name} is {request.status}"
        late = any(f.fate == LATE for f in before.flights(request.id))
        wrong = ""
        if isinstance(choice, FinishLoad) and request.status not in (LOADED, FAILED):
            wrong = "its load is taken over"
        if isinstance(choice, Admit) and request.status not in (WAITING, PREEMPTED, FAILED):
            wrong = "it is admitted"
        if isinstance(choice, Admit) and late:
            said, wrong = f"a token of {request.id} from before is still to come", "it is admitted"
        if wrong:
            yield because(said, wrong, engine=before.name, request=request.id)


GUARD = Guard(
    id="admitted_request_was_waiting",
    name="a request is admitted only while it waits, and a load is taken over only when it ended",
    part="scheduler",
    severity=Severity.WRONG_TOKENS,
    check=check,
)
