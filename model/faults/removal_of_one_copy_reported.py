"""What vLLM 0.32.0 does (vllm#55092, open). Two blocks are cached under one key, as when a prompt
of whole blocks is sent again and its last block is computed again; one of them is given away, and
the removal of the key is told. A listener that counts how often a key was stored is right; one that
keeps a set is not."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="removal_of_one_copy_reported",
    origin="vllm#55092",
    mistake="the removal of a key is told while another block is cached under it",
    replaces=("tells_removal", lambda _copies_left: True),
    breaks=("events_replay_to_the_cache", "events_carry_their_tokens"),
    cluster="events",
    trace_events=6,
    also_in=("pd-events",),
)
