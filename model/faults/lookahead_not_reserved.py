"""vLLM did not reserve the lookahead slots in which a drafter writes (vllm#57605, for Mamba in
align mode). At a block boundary the drafter writes outside the block table."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="lookahead_not_reserved",
    origin="vllm#57605",
    mistake="no blocks are allocated for the lookahead slots of the drafter",
    replaces=("lookahead", lambda _tokens: 0),
    breaks=("writer_is_alone",),
    cluster="drafts",
    trace_events=2,
)
