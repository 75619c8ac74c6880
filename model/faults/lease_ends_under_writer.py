"""vLLM 0.32.0's push connector on P (vllm#55470): when the lease expires, P frees the blocks
although P itself still writes them to D, or is about to write them. D receives what the next owner
computes."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="lease_ends_under_writer",
    origin="vllm#55470",
    mistake="P frees its blocks when the lease expires, although it still writes them to D",
    replaces=("frees_at_lease_end", lambda _writes: True),
    breaks=("request_reads_its_own_prefix", "nothing_reused_under_transfer"),
    cluster="push-overdue",
    trace_events=6,
    concerns=lambda cluster: cluster.pushes,
)
