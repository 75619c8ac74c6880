"""vLLM 0.32.0, found by kvproof. The groups have unequal block sizes and none is Mamba, so hits are
multiples of the largest block size. A full-attention group with a larger block size still caches
the last prefix of a prompt that is a multiple of the smallest block size, as a second key of its
block. No lookup uses this key (`FullAttentionManager._cache_partial_tail_block`)."""

from kvproof.model import config
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks.caching import caches_prompt_end


def full_attention_always(cfg: config.EngineConfig, group: config.Group) -> bool:
    """Full attention always caches the end of a prompt, also if no hit can end there."""
    return group.kind == "full" or caches_prompt_end(cfg, group)


FAULT = Fault(
    name="end_of_prompt_cached_in_wider_block",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="FullAttentionManager.cache_blocks",
    mistake="full attention caches a prefix that ends inside a block, where no hit can end",
    replaces={"reference.blocks.caching:caches_prompt_end": full_attention_always},
    breaks=("cached_key_can_be_hit",),
    cluster="unequal",
    trace_events=2,
)
