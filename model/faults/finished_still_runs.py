"""A request that P has finished stays until D has read its blocks, but runs no more. Were it left
in the running queue, the next step would compute another token of it. No release is known for this;
it is the simplest way to be in two places."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="finished_still_runs",
    origin="vllm-ascend#10545",
    mistake="P leaves a request that waits for D in the running queue",
    replaces=("stop_running", lambda engine, _name: engine),
    breaks=("every_request_in_one_queue",),
    cluster="pd",
    trace_events=5,
)
