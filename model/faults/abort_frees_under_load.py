"""vllm#32255: a user aborted a request in the status WAITING_FOR_REMOTE_KVS. D freed its blocks at
once, and the read from P went on and wrote them."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="abort_frees_under_load",
    origin="vllm#32255",
    in_vllm="Scheduler.finish_requests",
    mistake="an abort frees D's blocks while the transfer still writes them",
    replaces={
        "reference.transfers.request_ends:keeps_its_blocks": lambda _request: False,
        "counting_abstraction.table_system:keeps_its_blocks": lambda _t: False,
    },
    breaks=("nothing_reused_under_transfer",),
    cluster="pd-aborting",
    trace_events=6,
)
