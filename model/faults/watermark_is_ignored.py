"""The watermark keeps blocks free for running requests (vllm#44594). A scheduler that ignores it
where it admits a request lets the requests preempt each other."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="watermark_is_ignored",
    origin="vllm#44594",
    in_vllm="KVCacheManager.allocate_slots",
    mistake="an admission beside running requests takes the blocks of the watermark",
    replaces={"reference.scheduling.greedy:kept_at_admission": lambda _watermark, _others_run: 0},
    breaks=("watermark_is_kept",),
    cluster="watermark",
    trace_events=5,
)
