"""vLLM 0.32.0, found by kvproof. A request hits inside a block that another request of the same
step will fill. vLLM copies the block before the step computes, so the copy holds the old content.
For Mamba states vLLM waits one step, but it may use older states; for attention it does not
wait."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="copied_before_filled",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="Scheduler.schedule",
    mistake="a block is copied for a hit before the step that fills it has computed",
    replaces={"reference.blocks.partial_block_hits:filled_by_step": lambda *_: False},
    breaks=("cached_block_holds_its_key", "request_reads_its_own_prefix"),
    cluster="partial-evicting",
    trace_events=9,
    concerns=lambda cluster: any(engine.partial_block_hits for engine in cluster.engines),
)
