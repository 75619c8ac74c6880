"""vLLM 0.32.0, found by kvproof on the live connector. The load of a reverse transfer failed, or P
loaded it and preempted the request, or P loaded a prompt of one token, which it computes again.
When P admits the request again, it counts D's tokens as external again and waits for them. The
connector starts one transfer per request, so nothing is read or reported, and the request waits
with its blocks for ever. In the same situation D marks the transfer as done and computes the tokens
itself."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="held_is_loaded_again",
    origin="kvproof, vLLM 0.32.0",
    mistake="P waits a second time for a reverse transfer, and no second read is started",
    replaces=("asks_for_held", lambda _asked: True),
    breaks=("every_request_can_finish",),
    cluster="turns-recomputing",
    trace_events=15,
    concerns=lambda cluster: cluster.follow_up_turns,
)
