"""vllm#43733: the lookahead slots of the drafter were left out in the first step of a request, so
that D takes as many blocks as P. But a request without a load drafts in its first step, too."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="first_step_reserves_no_lookahead",
    origin="vllm#43733",
    mistake="an admission allocates no blocks for the lookahead slots of the drafter",
    replaces=("lookahead_at_admission", lambda _tokens: 0),
    breaks=("writer_is_alone",),
    cluster="drafts",
    trace_events=2,
)
