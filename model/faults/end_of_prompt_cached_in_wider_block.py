"""What vLLM 0.32.0 does, found by kvproof. Groups have unequal block sizes and none is Mamba, so
hits are multiples of the widest block. Full attention with a block wider than the finest still
caches the last prefix of a prompt that is a multiple of the finest, under a second key of its
block. No lookup asks for it (`FullAttentionManager._cache_partial_tail_block`)."""

from kvproof.model import config
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks.caching import caches_prompt_end


def full_attention_always(cfg: config.Engine, group: config.Group) -> bool:
    """Full attention also where no hit can end there."""
    return group.kind == "full" or caches_prompt_end(cfg, group)


FAULT = Fault(
    name="end_of_prompt_cached_in_wider_block",
    origin="kvproof, vLLM 0.32.0",
    mistake="full attention caches a prefix inside a block where no hit can end inside a block",
    replaces=("caches_prompt_end", full_attention_always),
    breaks=("cached_key_can_be_hit",),
    cluster="unequal",
    trace_events=2,
)
