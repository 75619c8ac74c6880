"""vLLM 0.32.0, found by kvproof. A hit that ends inside a block needs a copy, and the cached block
is held until the copy is made. The request then needs one block more than it would need without the
hit. If the pool is only as large as the longest request needs, this hit never fits. vLLM does not
try a shorter hit, and the request waits for ever."""

from kvproof.model import config
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks import prefix_hits
from kvproof.model.state import Engine


def without_a_look_at_the_pool(cfg: config.EngineConfig, engine: Engine, tokens: str) -> int:
    """The longest hit that holds in every group, whether or not it fits in the pool."""
    found = (n for n in prefix_hits.lengths(cfg, tokens) if n > 0)
    return next((n for n in found if prefix_hits.holds(cfg, engine, tokens, n)), 0)


FAULT = Fault(
    name="hit_without_room_waits",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="Scheduler.schedule",
    mistake="a request waits for ever with a hit whose copy does not fit into the pool",
    replaces={"reference.blocks.prefix_hits:longest_together": without_a_look_at_the_pool},
    breaks=("step_makes_progress", "every_request_can_finish"),
    cluster="partial-tight",
    trace_events=9,
    concerns=lambda cluster: any(engine.partial_block_hits for engine in cluster.engines),
)
