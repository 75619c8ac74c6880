"""A freed block does not return to the pool (sglang#16067, there a Mamba slot). The pool becomes
smaller with every request."""

from kvproof.model.faults.claims import claims
from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="freed_block_leaks",
    origin="sglang#16067",
    mistake="a block without references is not put into the free queue",
    replaces=("entries_queued", lambda _freed: 0),
    breaks=("pool_adds_up", "all_blocks_return"),
    cluster="full",
    trace_events=3,
    refutes=claims("pool", "pool_adds_up"),
)
