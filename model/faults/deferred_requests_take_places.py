"""vllm#53130: requests that wait for their loads counted towards `max_num_seqs`. When the loads
never came, no other request was admitted. The engine was healthy and scheduled nothing."""

from kvproof.model.faults.fault import Fault
from kvproof.model.state import FAILED, LOADED, LOADING, PAUSED, RUNNING

FAULT = Fault(
    name="deferred_requests_take_places",
    origin="vllm#53130",
    in_vllm="Scheduler.schedule",
    mistake="a request that waits for its load counts as a running request",
    replaces={
        "reference.scheduling.service_order:takes_a_place": lambda status: (
            status in (RUNNING, PAUSED, LOADING, LOADED, FAILED)
        )
    },
    breaks=("every_request_can_finish",),
    cluster="pd-limited",
    trace_events=12,
)
