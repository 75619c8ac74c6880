"""A reset after a change of weights must leave no cache entry of the old weights (vllm#57727 is
about a cache tier that was not reset). Here a reset removes only the entries of free blocks and
reports success. Later prompts still hit entries of the old weights."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="reset_under_load",
    origin="vllm#57727",
    in_vllm="BlockPool.reset_prefix_cache",
    mistake="a reset is carried out while blocks are in use, and leaves these blocks in the cache",
    replaces={"reference.blocks.pool:is_idle": lambda _engine: True},
    breaks=("reset_is_whole",),
    cluster="resetting",
    trace_events=4,
)
