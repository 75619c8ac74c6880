"""vLLM 0.32.0, found by kvproof on the live connector. D has computed an answer, and the next turn
submits the same prompt again, or a part of it. P asks for the tokens of its prompt, and the reverse
transfer offers D's whole list. vLLM trims this list at its front to the length of P's list, as if P
and D had stopped at the same token. P's blocks receive the KV of the answer, and P caches them as
its prompt."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="held_list_ends_with_prompt",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="NixlPullConnectorWorker._read_blocks_for_req",
    mistake="D's blocks are paired with P's blocks from the end of D's list, where D's answer is",
    replaces={
        "reference.transfers.block_pairs:cut_held_list": lambda _first, held, end: (
            end - len(held),
            held,
        )
    },
    breaks=("paired_offsets_are_equal",),
    cluster="turns-shorter",
    trace_events=16,
    concerns=lambda cluster: cluster.follow_up_turns,
)
