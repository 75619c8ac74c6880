"""What vLLM 0.32.0's push connector does on D. A request that hits all it needs, or ends before it
is admitted, is to have P told so; no word is sent, and P keeps the blocks until its lease ends."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="unneeded_prefill_is_not_reported",
    origin="kvproof, vLLM 0.32.0",
    mistake="P is not told that D needs nothing of a request, and keeps its blocks",
    replaces=("decline_push", lambda transfer: transfer),
    breaks=("nothing_kept_for_nobody",),
    cluster="push",
    trace_events=13,
    concerns=lambda cluster: cluster.pushes,
)
