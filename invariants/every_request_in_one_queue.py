"""Schedulers with queues of their own put requests into one that nobody looked at: they waited for
ever (vllm-ascend#10545). A request that is in two queues is served twice, or freed while it runs;
one that waits and keeps blocks takes them from those that could use them."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.severity import Severity
from kvproof.model.state import MISQUEUED, PREEMPTED, RUNNING, WAITING, Engine, Request


def check(cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """Who runs is in the running queue once, and nobody else is. Who does not run is where its
    status says, and holds blocks only for what it loaded into them, or as a session."""
    for request in engine.requests:
        times = engine.running.count(request.id)
        if times != (request.status == RUNNING):
            yield because(
                f"{request.id} is {request.status} on {engine.name}",
                f"it is in the running queue {times} times",
                engine=engine.name,
                request=request.id,
            )
        if request.status == MISQUEUED:
            yield because(
                f"{request.id} is unfinished on {engine.name}",
                "no queue has it, or several have",
                engine=engine.name,
                request=request.id,
            )
        if (
            request.status in (WAITING, PREEMPTED)
            and request.tables
            and not _kept(cluster, request)
        ):
            yield because(
                f"{request.id} only waits on {engine.name}",
                "it keeps its blocks",
                engine=engine.name,
                request=request.id,
            )
    for name in engine.running:
        if engine.find(name) is None:
            yield because(
                f"{name} is in the running queue of {engine.name}",
                "it has left the engine",
                engine=engine.name,
                request=name,
            )


def _kept(cluster: Cluster, request: Request) -> bool:
    """Whether its blocks hold what a load has brought, or the earlier parts of a session."""
    return request.external > 0 or bool(cluster.job(request.id).parts)


INVARIANT = Invariant(
    id="every_request_in_one_queue",
    name="every unfinished request is in exactly one queue, and waits with blocks for a reason",
    origin="vllm-ascend#10545",
    severity=Severity.HANG,
    check=EachEngine(check),
    killed_by="finished_still_runs",
)
