"""A request that P has finished waits for D, and stays in the running queue meanwhile."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="request_stays_in_running_queue",
    origin="an example",
    mistake="P leaves a request that waits for D in the running queue",
    replaces={"reference.transfers.request_ends:stop_running": lambda engine, _name: engine},
    breaks=("whoever_runs_is_running",),
    cluster="pd-full",
    trace_events=3,
)
