"""What vLLM 0.32.0 does, found by kvproof on the live connector. P could not load what D holds, or
loaded it and was preempted, or loaded a prompt of a single token, which it computes again. Admitted
again it counts on D's tokens once more and waits for them, but the connector starts one transfer a
request: nobody reads, nobody reports, and the request waits with its blocks for ever. D, which
marks a transfer as done, computes in such a case."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="held_is_loaded_again",
    origin="kvproof, vLLM 0.32.0",
    mistake="P waits a second time for what D holds, and no second read is started",
    replaces=("asks_for_held", lambda _asked: True),
    breaks=("every_request_can_finish",),
    cluster="turns-recomputing",
    trace_events=15,
    concerns=lambda cluster: cluster.follow_up_turns,
)
