"""vLLM 0.32.0 (vllm#55092, open): two blocks are cached under one key, for example after a prompt
of full blocks is submitted again and its last block is recomputed. One of the blocks is evicted,
and vLLM reports the key as removed. A listener that counts how often each key was stored stays
correct; a listener that keeps a set of keys does not."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="removal_of_one_copy_reported",
    origin="vllm#55092",
    mistake="a key is reported as removed while another block is cached under it",
    replaces=("reports_removal", lambda _copies_left: True),
    breaks=("events_replay_to_the_cache", "events_carry_their_tokens"),
    cluster="events",
    trace_events=6,
    also_in=("pd-events",),
)
