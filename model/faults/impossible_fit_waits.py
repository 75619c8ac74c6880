"""vLLM 0.32.0's scheduler (the open part of vllm#39734, and vllm#52520): a request that needs more
blocks than the pool has is queued like any other request. It can never run, and all requests behind
it wait."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="impossible_fit_waits",
    origin="vllm#39734",
    in_vllm="Scheduler.add_request",
    mistake=(
        "a request that does not fit into the whole pool is queued and blocks the requests "
        "behind it"
    ),
    replaces={"capacity:can_hold": lambda _engine, _request: True},
    breaks=("step_makes_progress", "every_request_can_finish"),
    cluster="oversized",
    trace_events=2,
    concerns=lambda cluster: cluster.oversized,
)
