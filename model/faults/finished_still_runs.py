"""P has finished a request and keeps it until D has read its blocks. The request must not run in
this time: the next step would compute one more token of it. No release is known to have this
mistake; it is the simplest way for a request to be in two places."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="finished_still_runs",
    origin="vllm-ascend#10545",
    in_vllm="Scheduler.update_from_output",
    mistake="P keeps a request that waits for D in the running queue",
    replaces={"reference.transfers.request_ends:stop_running": lambda engine, _name: engine},
    breaks=("every_request_in_one_queue",),
    cluster="pd",
    trace_events=5,
)
