"""Before vllm#46974 the worker was not told which requests a reset had preempted. Here it is told
of no preemption."""

from kvproof.model.faults.fault import Fault
from kvproof.model.state import PREEMPTED, RUNNING

FAULT = Fault(
    name="preemption_is_not_told",
    origin="vllm#46974",
    mistake="the worker keeps the place of a preempted request",
    replaces=("keeps_its_place", lambda request: request.status in (RUNNING, PREEMPTED)),
    breaks=("worker_forgets_who_left",),
    cluster="window",
    trace_events=5,
)
