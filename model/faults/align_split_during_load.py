"""The other half of #42554: a request that is to load schedules no tokens, and 0 tokens after the
align split means 'not in this step'. It is never admitted."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="align_split_during_load",
    born_of="vllm#42554",
    mistake="the align split is applied to a load, finds 0 tokens and puts it off for ever",
    replaces=("load_at_align_split", lambda: "waits"),
    breaks=("every_request_can_finish",),
    cluster="pd",
)
