"""Before vllm#46974 the worker had no report of requests that a reset had preempted. Here no
preemption is reported to it."""

from kvproof.model.faults.fault import Fault
from kvproof.model.state import PREEMPTED, RUNNING

FAULT = Fault(
    name="preemption_is_not_reported",
    origin="vllm#46974",
    in_vllm="Scheduler._preempt_request",
    mistake="the worker keeps the place of a preempted request",
    replaces={
        "reference.scheduling.reported_to_worker:keeps_its_place": lambda request: (
            request.status in (RUNNING, PREEMPTED)
        )
    },
    breaks=("worker_forgets_who_left",),
    cluster="window",
    trace_events=5,
)
