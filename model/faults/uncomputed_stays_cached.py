"""vllm#57580: with priority scheduling, a request may be preempted in the step that was to compute
its tokens. Its blocks were cached when they were allocated, and stay cached. A request that hits
them reads KV that was never written."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="uncomputed_stays_cached",
    origin="vllm#57580",
    in_vllm="Scheduler._preempt_request",
    mistake=(
        "blocks of a request that is removed from a step stay cached, although they were never "
        "filled"
    ),
    replaces={"reference.blocks.pool:forget_uncomputed": lambda _begun, engine, _request: engine},
    breaks=("cached_block_holds_its_key",),
    cluster="priority-hybrid",
    trace_events=7,
)
