"""Compare vllm#51766: after a state was cached inside a block, the scheduler and the worker
disagree about the block in which the request continues. The request overwrites the cached state."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="cached_state_overwritten",
    origin="vllm#51766",
    in_vllm="MambaManager.allocate_new_blocks",
    mistake="a request continues in the block that holds its cached state",
    replaces={"reference.blocks.partial_block_hits:goes_on_from_cached": lambda *_: False},
    breaks=("cached_block_holds_its_key", "writer_is_alone"),
    cluster="partial",
    trace_events=6,
)
