"""vLLM 0.32.0 (vllm#44451, open): between two cached blocks some blocks are skipped (null
placeholders of a Mamba group, or blocks that sparse retention drops). The KV event leaves out the
hashes of the skipped blocks, but not their tokens. If all blocks were skipped, the event has tokens
and no hashes."""

from kvproof.model.faults.fault import Fault


def all_looked_at(
    looked_at: range, cached: tuple[int, ...]
) -> tuple[tuple[range, tuple[int, ...]], ...]:
    """One report over all positions that has the hashes of some."""
    return ((looked_at, cached),) if looked_at else ()


FAULT = Fault(
    name="report_spans_skipped_blocks",
    origin="vllm#44451",
    in_vllm="BlockPool._build_block_stored_event",
    mistake="a report of stored blocks carries the tokens of skipped blocks too",
    replaces={"reference.blocks.kv_event_queue:report_spans": all_looked_at},
    breaks=("events_carry_their_tokens",),
    cluster="events-hybrid",
    trace_events=2,
)
