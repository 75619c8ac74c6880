"""What vLLM 0.32.0's push connector does on D (#46283, #53095). D's wait for a write ends with the
write, and with nothing else: the watchdog over its registrations writes a line to the log. Where P
aborted the request, gave it up before D registered, or could not write, D keeps the blocks for
ever, also for a user who has left."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="write_awaited_for_ever",
    origin="vllm#46283",
    mistake="D waits without bound for a write that will not come",
    replaces=("drop_registration", lambda state, _name: state),
    breaks=("every_request_can_finish",),
    cluster="push-failing",
    trace_events=4,
    concerns=lambda cluster: cluster.pushes,
)
