"""vllm#49206: the loop over the running requests keeps its position when it preempts a request
that it has already passed and not scheduled. The next running request moves to that position, and
the loop does not look at it."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="preemption_skips_the_next",
    origin="vllm#49206",
    mistake="after the preemption of an earlier request, the loop skips the next running request",
    replaces=("turns_left", lambda turn, preempted: turn[preempted:]),
    breaks=("room_is_used",),
    cluster="priority-async",
    trace_events=7,
)
