"""What vLLM 0.32.0 does, found by kvproof. A hit that ends inside a block takes a copy, and the
cached block is held until it is made: a block more than the request would take without the hit.
Where the pool is as large as the longest request needs, such a hit never fits. The request is not
given a shorter one, and waits for ever."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="hit_without_room_waits",
    origin="kvproof, vLLM 0.32.0",
    mistake="a request waits for ever with a hit whose copy the pool has no room for",
    replaces=("hit_fits_pool", lambda _needed, _total: True),
    breaks=("step_makes_progress", "every_request_can_finish"),
    cluster="partial-tight",
    trace_events=9,
    concerns=lambda cluster: any(engine.partial_block_hits for engine in cluster.engines),
)
