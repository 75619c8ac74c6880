"""vllm#49439: sessions keep their blocks while they wait, and vLLM does not preempt a waiting
session. Two sessions that need more blocks than are free wait for each other. No request runs, and
nothing ever changes."""

from collections.abc import Sequence

from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks import allocation
from kvproof.model.reference.scheduling.greedy import Greedy, serve_waiting
from kvproof.model.state import Request


def holding_on(work: Greedy, waiting: Sequence[Request]) -> None:
    """Waiting sessions keep their blocks, also if no request runs.

    vLLM serves sessions in the order of their pauses, which the state does not record; this rule
    uses the worst order. A chunk of a session might fit, but vLLM asks for room for the whole
    session before it continues.
    """
    if not work.cluster.sessions:
        serve_waiting(work, waiting)
        return
    worst = sorted(waiting, key=lambda r: (not r.tables, _priority(work, r), -lacks(work, r)))
    for request in worst:
        if lacks(work, request) > len(work.engine.free) or not work.serve(request):
            break


def lacks(work: Greedy, request: Request) -> int:
    """Number of blocks that a session needs for all its tokens and does not hold."""
    if not request.tables:
        return 0
    tokens = len(request.tokens)
    return allocation.predicted(work.cfg, work.engine, request, None, tokens)


def _priority(work: Greedy, request: Request) -> int:
    return work.cluster.job(request.id).priority


FAULT = Fault(
    name="waiting_sessions_hold_on",
    origin="vllm#49439",
    in_vllm="Scheduler.schedule",
    mistake="a waiting session never gives up its blocks, although no request runs",
    replaces={"reference.scheduling.greedy:serve_waiting": holding_on},
    breaks=("every_request_can_finish", "step_makes_progress"),
    cluster="sessions",
    trace_events=9,
    concerns=lambda cluster: cluster.sessions,
)
