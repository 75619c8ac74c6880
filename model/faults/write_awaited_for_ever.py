"""vLLM 0.32.0's push connector on D (vllm#46283, vllm#53095): D waits for a write until the write
ends. The watchdog over its registrations only writes a log line. If P aborted the request, gave it
up before D registered, or could not write, D keeps the blocks for ever, also if its user has
left."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="write_awaited_for_ever",
    origin="vllm#46283",
    in_vllm="NixlPushConnectorScheduler.build_connector_meta",
    mistake="D waits without limit for a write that will never come",
    replaces={"reference.transfers.push:deadline_ended": lambda _cluster, state, _name: state},
    breaks=("every_request_can_finish",),
    cluster="push-failing",
    trace_events=5,
    concerns=lambda cluster: cluster.pushes,
)
