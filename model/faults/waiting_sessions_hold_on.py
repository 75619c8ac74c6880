"""#49439: sessions keep their blocks while they wait, and a session that waits cannot be preempted.
Two that need more than is free wait for each other; nobody runs, and nothing ever changes."""

from collections.abc import Sequence

from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks import allocation
from kvproof.model.reference.scheduling.greedy import Greedy, serve_waiting
from kvproof.model.state import Request


def holding_on(work: Greedy, waiting: Sequence[Request]) -> None:
    """Sessions that wait keep their blocks, also where nobody runs. vLLM's order is that of
    pausing, which a state does not tell: the worst one is taken. A chunk of a session might fit;
    vLLM asks for room for all of it before it goes on."""
    if not work.cluster.sessions:
        serve_waiting(work, waiting)
        return
    worst = sorted(waiting, key=lambda r: (not r.tables, _priority(work, r), -lacks(work, r)))
    for request in worst:
        if lacks(work, request) > len(work.engine.free) or not work.serve(request):
            break


def lacks(work: Greedy, request: Request) -> int:
    """Blocks that a session needs for all its tokens and does not hold."""
    if not request.tables:
        return 0
    tokens = len(request.tokens)
    return allocation.predicted(work.cfg, work.engine, request, None, tokens, work.rules)


def _priority(work: Greedy, request: Request) -> int:
    return work.cluster.job(request.id).priority


FAULT = Fault(
    name="waiting_sessions_hold_on",
    origin="vllm#49439",
    mistake="a session that waits to be served never gives up its blocks, though nobody runs",
    replaces=("serve_waiting", holding_on),
    breaks=("every_request_can_finish", "step_makes_progress"),
    cluster="sessions",
    trace_events=9,
    concerns=lambda cluster: cluster.sessions,
)
