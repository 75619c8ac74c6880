"""What vLLM 0.32.0 does, found by kvproof on the live connector. D has computed an answer, and the
next turn sends the same prompt again, or a part of it. P asks for the tokens of its prompt, and is
given D's whole list: cut to the length of P's from its end, as between a P and a D that stopped at
the same token, it fills P's blocks with the KV of the answer. P then caches them as its prompt."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="held_list_ends_with_prompt",
    origin="kvproof, vLLM 0.32.0",
    mistake="what D holds is paired with P's blocks from its end, where D's answer is",
    replaces=("cut_held_list", lambda _first, held, end: (end - len(held), held)),
    breaks=("paired_offsets_are_equal",),
    cluster="turns-shorter",
    trace_events=16,
    concerns=lambda cluster: cluster.follow_up_turns,
)
