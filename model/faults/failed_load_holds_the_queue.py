"""vllm#57841, its last limit: a request whose load failed has lost its blocks, and keeps its place
before requests that hold loaded blocks. To compute its prompt takes more blocks than to load it,
where a group has a window. The step ends at it, so nobody behind it runs and frees a block."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="failed_load_holds_the_queue",
    origin="vllm#57841",
    in_vllm="Scheduler.schedule",
    mistake="a request without blocks is tried before requests that hold loaded blocks",
    replaces={"reference.scheduling.greedy:without_blocks": lambda _request: False},
    breaks=("every_request_can_finish",),
    cluster="pd-window-recomputing",
    trace_events=14,
)
