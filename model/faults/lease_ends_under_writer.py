"""What vLLM 0.32.0's push connector does on P (#55470). A lease that ends gives the blocks back
though P itself still writes them out, or is about to: D is given what the next owner computes."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="lease_ends_under_writer",
    origin="vllm#55470",
    mistake="P lets its blocks go when its lease ends, though it still writes them to D",
    replaces=("frees_at_lease_end", lambda _writes: True),
    breaks=("request_reads_its_own_prefix", "nothing_reused_under_transfer"),
    cluster="push-overdue",
    trace_events=6,
    concerns=lambda cluster: cluster.pushes,
)
