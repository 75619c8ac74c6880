"""vllm#35943: a failed transfer was only logged, and its request waited for the end of the transfer
for ever."""

from kvproof.model.counting_abstraction.table import TableCounts
from kvproof.model.faults.claims import TABLES, claims
from kvproof.model.faults.fault import Fault
from kvproof.model.state import Request


def waiting_on(request: Request) -> Request:
    """The request still waits for its load."""
    return request._replace(computed=0)


def waiting_on_in_counts(t: TableCounts) -> TableCounts:
    """The counts of such a request."""
    return t._replace(computed=0)


FAULT = Fault(
    name="failed_load_waits_on",
    origin="vllm#35943",
    in_vllm="Scheduler._handle_failed_recving",
    mistake="a request continues to wait for its load after the load has failed",
    replaces={
        "reference.transfers.transfer_ends:restarted": waiting_on,
        "counting_abstraction.table_system:restarted": waiting_on_in_counts,
    },
    breaks=("every_request_can_finish",),
    cluster="pd-recomputing",
    trace_events=9,
    refutes=claims(TABLES, "loads_all_or_nothing"),
    refutes_in_turn=claims(("window", "mamba", "state"), "null_is_not_needed"),
)
