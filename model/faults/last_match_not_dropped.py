"""With a drafter of the EAGLE kind the last block of a match was taken too (vllm#17137): its layers
then read what they wrote for a prompt that goes on otherwise."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="last_match_not_dropped",
    origin="vllm#17137",
    mistake="a hit takes the last block that matches, though a drafter has layers in it",
    replaces=("matched_and_dropped", lambda _length, _block_size: ()),
    breaks=("hit_holds_in_every_group",),
    cluster="drafts",
    trace_events=7,
)
