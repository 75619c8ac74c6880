"""vllm#44701: a LoRA adapter whose name is the salt of another user has the same block hashes, so
each reads KV that the other has computed."""

from kvproof.model.config.extra_keys import plain
from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="extra_keys_left_out",
    origin="vllm#44701",
    in_vllm="Request.update_block_hashes",
    mistake="the key of a block has its tokens, and nothing of the salt or the adapter",
    replaces={
        "reference.blocks.groups:hashed_prefix": lambda tokens, end, ahead: plain(
            tokens[: end + ahead]
        )
    },
    breaks=("cached_block_holds_its_key",),
    cluster="extra-keys",
    trace_events=2,
)
