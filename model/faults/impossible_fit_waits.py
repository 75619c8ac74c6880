"""What vLLM 0.32.0's scheduler does (#39734, the part that is still open; #52520). A request that
needs more blocks than the pool has is queued like any other: it can never run, and everybody who
came after it waits behind it."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="impossible_fit_waits",
    origin="vllm#39734",
    mistake="a request that the whole pool cannot hold is queued, and blocks those behind it",
    replaces=("request_fits_pool", lambda _needed, _total: True),
    breaks=("step_makes_progress", "every_request_can_finish"),
    cluster="oversized",
    trace_events=2,
    concerns=lambda cluster: cluster.oversized,
)
