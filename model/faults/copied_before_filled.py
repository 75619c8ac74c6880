"""What vLLM 0.32.0 does, found by kvproof. A request hits inside a block that another one of the
same step is to fill. The copy is made before the step computes: it has what the block held before.
For states vLLM waits a step; the states at hand may be older, and attention is not asked."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="copied_before_filled",
    origin="kvproof, vLLM 0.32.0",
    mistake="a block is copied for a hit in the step that fills it, before it is filled",
    replaces=("filled_by_step", lambda *_: False),
    breaks=("cached_block_holds_its_key", "request_reads_its_own_prefix"),
    cluster="partial-evicting",
    trace_events=9,
    concerns=lambda cluster: any(engine.partial_block_hits for engine in cluster.engines),
)
