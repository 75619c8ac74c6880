"""What vLLM 0.32.0 does, found by kvproof. Groups have unequal block sizes and none is Mamba, so
hits are multiples of the widest block. Full attention with a block wider than the finest still
caches the last prefix of a prompt that is a multiple of the finest, under a second key of its
block. No lookup asks for it (`FullAttentionManager._cache_partial_tail_block`)."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="end_of_prompt_cached_in_wider_block",
    born_of="kvproof, vLLM 0.32.0",
    mistake="full attention caches a prefix inside a block where no hit can end inside a block",
    replaces=("caches_end_of_prompt", lambda: True),
    breaks=("cached_key_can_be_hit",),
    cluster="unequal",
)
