"""vllm#35943: a failed transfer was only logged, and its request waited for the end of the transfer
for ever."""

from kvproof.model.faults.claims import TABLES, claims
from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="failed_load_waits_on",
    origin="vllm#35943",
    mistake="a request continues to wait for its load after the load has failed",
    replaces=("restart_after_failed_load", lambda request, _failed: request._replace(computed=0)),
    breaks=("every_request_can_finish",),
    cluster="pd-recomputing",
    trace_events=9,
    refutes=claims(TABLES, "loads_all_or_nothing"),
    refutes_in_turn=claims(("window", "mamba", "state"), "null_is_not_needed"),
)
