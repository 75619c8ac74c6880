"""vLLM 0.32.0 (vllm#55092, open): two blocks are cached under one key, for example after a prompt
of full blocks is submitted again and its last block is recomputed. One of the blocks is evicted,
and vLLM reports the key as removed. A listener that counts how often each key was stored stays
correct; a listener that keeps a set of keys does not."""

from kvproof.model.faults.fault import Fault
from kvproof.model.kv_events import Removed
from kvproof.model.reference.blocks.kv_event_queue import reporting
from kvproof.model.reference.blocks.pool import forget_key
from kvproof.model.state import Engine, Key


def reporting_each(engine: Engine, key: Key, block: int) -> Engine:
    """Report the removal, also where another block is cached under the key."""
    after = forget_key(engine, key, block)
    return reporting(after, Removed(*key)) if after.blocks_for(key) else after


FAULT = Fault(
    name="removal_of_one_copy_reported",
    origin="vllm#55092",
    in_vllm="BlockPool._emit_block_removed_events",
    mistake="a key is reported as removed while another block is cached under it",
    replaces={"reference.blocks.pool:forget_key": reporting_each},
    breaks=("events_replay_to_the_cache", "events_carry_their_tokens"),
    cluster="events",
    trace_events=6,
    also_in=("pd-events",),
)
