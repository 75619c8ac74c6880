"""A fault of somebody who uses kvproof."""

from kvproof.model.faults.fault import fault
from kvproof.model.state import Engine


@fault(
    "P leaves a request that waits for D in the running queue",
    origin="an example",
    replaces="reference.transfers.request_ends:stop_running",
    breaks="whoever_runs_is_running",
    cluster="pd-full",
)
def request_stays_in_running_queue(engine: Engine, _name: str) -> Engine:
    """A request that P has finished waits for D, and stays in the running queue meanwhile."""
    return engine
