"""Compare vllm#49125: an entry of the hash map outlives the content of its block."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="evicted_key_stays",
    origin="vllm#49125",
    in_vllm="BlockPool._maybe_evict_cached_block",
    mistake="a block that is allocated to a new owner stays in the hash map under its old key",
    replaces={"reference.blocks.pool:forget_key": lambda engine, *_: engine},
    breaks=(
        "hash_map_is_sound",
        "cached_block_holds_its_key",
    ),
    cluster="full-evicting",
    trace_events=7,
)
