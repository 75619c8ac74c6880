"""A request continued from the state after all its drafts, the rejected ones too (vllm#42792 and
vllm#57128: wrong states after a rejection, and silently wrong tokens)."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="state_of_rejected_drafts",
    origin="vllm#57128",
    mistake="a request continues from the state after drafts that were rejected",
    replaces=("states_kept", lambda _accepted, drafts: drafts),
    breaks=("state_read_is_state_at_computed",),
    cluster="hybrid-drafts",
    trace_events=8,
)
