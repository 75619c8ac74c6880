"""A scheduler with additional queues put requests into a queue that no step looked at, and they
waited for ever (vllm-ascend#10545). A request in two queues is scheduled twice, or freed while it
runs. A waiting request that keeps blocks without need takes them from requests that could run."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import MISQUEUED, PREEMPTED, RUNNING, WAITING, Engine, Request
from kvproof.model.subjects import Subject


def check(cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """A running request is in the running queue once, and no other request is in it. A waiting
    request holds blocks only for loaded tokens or as a session."""
    for request in engine.requests:
        times = engine.running.count(request.id)
        if times != (request.status == RUNNING):
            yield because(
                reason("has_status", "{request} is {status} on {engine}", status=request.status),
                reason("times_in_running", "the running queue has it {times} times", times=times),
                engine=engine.name,
                request=request.id,
            )
        if request.status == MISQUEUED:
            yield because(
                reason("unfinished", "{request} is unfinished on {engine}"),
                reason("in_no_queue", "it is in no queue, or in several"),
                engine=engine.name,
                request=request.id,
            )
        if (
            request.status in (WAITING, PREEMPTED)
            and request.tables
            and not _kept(cluster, request)
        ):
            yield because(
                reason(
                    "loaded_nothing",
                    "{request} on {engine} is {status} and has loaded nothing",
                    status=request.status,
                ),
                reason("keeps_blocks", "it keeps blocks"),
                engine=engine.name,
                request=request.id,
            )
    for name in engine.running:
        if engine.find(name) is None:
            yield because(
                reason("in_running_queue", "{request} is in the running queue of {engine}"),
                reason("not_on_the_engine", "the engine does not have this request"),
                engine=engine.name,
                request=name,
            )


def _kept(cluster: Cluster, request: Request) -> bool:
    """Whether the request keeps blocks for a reason: for loaded tokens, or for the earlier parts of
    a session."""
    return request.external > 0 or bool(cluster.job(request.id).parts)


INVARIANT = Invariant(
    id="every_request_in_one_queue",
    name=(
        "every unfinished request is in exactly one queue, and waits with blocks only for a reason"
    ),
    origin="vllm-ascend#10545",
    severity=Severity.HANG,
    check=EachEngine(check),
    needs=(Need.QUEUES,),
    subjects=(Subject.QUEUES, Subject.STATUS),
    killed_by="finished_still_runs",
)
