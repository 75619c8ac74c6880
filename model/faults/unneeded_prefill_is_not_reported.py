"""vLLM 0.32.0's push connector on D: if a request hits all it needs, or ends before it is admitted,
D must report this to P. D sends no report, and P keeps the blocks until its lease expires."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="unneeded_prefill_is_not_reported",
    origin="kvproof, vLLM 0.32.0",
    mistake="D does not report to P that it needs nothing of a request, and P keeps the blocks",
    replaces=("decline_push", lambda transfer: transfer),
    breaks=("nothing_kept_for_nobody",),
    cluster="push",
    trace_events=13,
    concerns=lambda cluster: cluster.pushes,
)
