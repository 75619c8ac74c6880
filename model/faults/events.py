"""KV events: what an engine reports of its cache."""

from kvproof.model.faults.fault import fault
from kvproof.model.kv_events import Removed
from kvproof.model.reference.blocks.kv_event_queue import reporting
from kvproof.model.reference.blocks.pool import forget_key
from kvproof.model.state import Engine, Key


@fault(
    "a key is reported as removed while another block is cached under it",
    origin="vllm#55092",
    in_vllm="BlockPool._emit_block_removed_events",
    replaces="reference.blocks.pool:forget_key",
    breaks=("events_replay_to_the_cache", "events_carry_their_tokens"),
    cluster="events",
    also_in=("pd-events",),
)
def removal_of_one_copy_reported(engine: Engine, key: Key, block: int) -> Engine:
    """vLLM 0.32.0 (vllm#55092, open): two blocks are cached under one key, for example after a
    prompt of full blocks is submitted again and its last block is recomputed. One of the blocks
    is evicted, and vLLM reports the key as removed. A listener that counts how often each key
    was stored stays correct; a listener that keeps a set of keys does not."""
    after = forget_key(engine, key, block)
    return reporting(after, Removed(*key)) if after.blocks_for(key) else after


@fault(
    "a report of stored blocks carries the tokens of skipped blocks too",
    origin="vllm#44451",
    in_vllm="BlockPool._build_block_stored_event",
    replaces="reference.blocks.kv_event_queue:report_spans",
    breaks="events_carry_their_tokens",
    cluster="events-hybrid",
)
def report_spans_skipped_blocks(
    looked_at: range, cached: tuple[int, ...]
) -> tuple[tuple[range, tuple[int, ...]], ...]:
    """vLLM 0.32.0 (vllm#44451, open): between two cached blocks some blocks are skipped (null
    placeholders of a Mamba group, or blocks that sparse retention drops). The KV event leaves
    out the hashes of the skipped blocks, but not their tokens. If all blocks were skipped, the
    event has tokens and no hashes. Here one report spans all positions and has the hashes of
    some."""
    return ((looked_at, cached),) if looked_at else ()
