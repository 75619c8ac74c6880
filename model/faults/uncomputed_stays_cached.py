"""#57580: by priority, a request may be preempted in the very step that was to compute its tokens.
The blocks it was to fill were cached when they were allocated, and stayed so. Whoever hits them
reads what was never written."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="uncomputed_stays_cached",
    origin="vllm#57580",
    mistake="blocks of a request that is taken out of a step stay cached, though never filled",
    replaces=("forget_uncomputed", lambda _begun, engine, *_: engine),
    breaks=("cached_block_holds_its_key", "writer_is_alone"),
    cluster="priority-hybrid",
    trace_events=7,
)
