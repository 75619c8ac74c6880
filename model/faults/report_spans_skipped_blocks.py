"""What vLLM 0.32.0 does (vllm#44451, open). The blocks between two cached ones that are skipped
(null placeholders of a Mamba group, blocks that sparse retention leaves out) are left out of the
hashes that are told, and their tokens are not. Where all were skipped, tokens are told alone."""

from kvproof.model.faults.fault import Fault


def all_looked_at(
    looked_at: range, cached: tuple[int, ...]
) -> tuple[tuple[range, tuple[int, ...]], ...]:
    """One report of all positions, that names some."""
    return ((looked_at, cached),) if looked_at else ()


FAULT = Fault(
    name="report_spans_skipped_blocks",
    origin="vllm#44451",
    mistake="a report of stored blocks carries the tokens of skipped ones too",
    replaces=("report_spans", all_looked_at),
    breaks=("events_carry_their_tokens",),
    cluster="events-hybrid",
    trace_events=2,
)
