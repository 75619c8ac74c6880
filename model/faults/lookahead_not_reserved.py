"""The slots after a step into which the drafter writes were not reserved (vllm#57605, for Mamba in
align mode): at a block boundary it writes outside the table."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="lookahead_not_reserved",
    origin="vllm#57605",
    mistake="no blocks are taken for the slots in which the drafter writes ahead",
    replaces=("lookahead", lambda _tokens: 0),
    breaks=("writer_is_alone",),
    cluster="drafts",
    trace_events=2,
)
