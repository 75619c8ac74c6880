"""#49439: sessions keep their blocks while they wait, and a session that waits cannot be preempted.
Two that need more than is free wait for each other; nobody runs, and nothing ever changes."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="waiting_sessions_hold_on",
    born_of="vllm#49439",
    mistake="a session that waits to be served never gives up its blocks, though nobody runs",
    replaces=("sessions_give_way", lambda: False),
    breaks=("every_request_can_finish", "step_makes_progress"),
    cluster="sessions",
    concerns=lambda cluster: cluster.sessions,
)
