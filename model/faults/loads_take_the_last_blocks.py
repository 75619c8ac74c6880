"""vllm#45388, fixed by vllm#44560: loads were admitted as long as there were blocks for the loaded
tokens. Each loaded request then needed one more block to continue. No request could be preempted,
and all waited for each other."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="loads_take_the_last_blocks",
    origin="vllm#45388",
    in_vllm="Scheduler._inflight_prefill_reserved_blocks",
    mistake="a load may take blocks that earlier requests need to finish",
    replaces={"reference.scheduling.greedy:Greedy.leaves_room": lambda _work, _before, _name: True},
    breaks=("every_request_can_finish",),
    cluster="pd-tight",
    trace_events=13,
)
