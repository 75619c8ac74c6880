"""The class of vllm#51766: scheduler and worker do not agree in which block a running request goes
on after its state was cached inside a block. The cached one is written over."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="cached_state_overwritten",
    origin="vllm#51766",
    mistake="a request goes on in the block in which its state is cached",
    replaces=("is_copied_first", lambda _block: False),
    breaks=("cached_block_holds_its_key", "writer_is_alone"),
    cluster="partial",
    trace_events=6,
)
