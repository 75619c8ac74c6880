"""vLLM 0.32.0, found by kvproof. A hit that ends inside a block needs a copy, and the cached block
is held until the copy is made. The request then needs one block more than it would need without the
hit. If the pool is only as large as the longest request needs, this hit never fits. vLLM does not
try a shorter hit, and the request waits for ever."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="hit_without_room_waits",
    origin="kvproof, vLLM 0.32.0",
    mistake="a request waits for ever with a hit whose copy does not fit into the pool",
    replaces=("hit_fits_pool", lambda _needed, _total: True),
    breaks=("step_makes_progress", "every_request_can_finish"),
    cluster="partial-tight",
    trace_events=9,
    concerns=lambda cluster: any(engine.partial_block_hits for engine in cluster.engines),
)
