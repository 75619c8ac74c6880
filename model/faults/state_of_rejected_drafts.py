"""A request continued from the state after all its drafts, the rejected drafts included (vllm#42792
and vllm#57128). The answer had wrong tokens, and nothing reported it."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="state_of_rejected_drafts",
    origin="vllm#57128",
    mistake="a request continues from the state after rejected drafts",
    replaces=("states_kept", lambda _accepted, drafts: drafts),
    breaks=("state_read_is_state_at_computed",),
    cluster="hybrid-drafts",
    trace_events=8,
)
