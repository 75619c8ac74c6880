"""Blocks are cached up to the end of a step, drafts included (compare vllm#18668, about the number
of drafts). A block with a rejected draft is cached and then overwritten."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.fault import Fault


def all_of_the_step(end: Num, known: Num) -> Num:  # noqa: ARG001
    """All tokens of the step, drafts included."""
    return end


FAULT = Fault(
    name="drafts_are_cached",
    origin="vllm#18668",
    in_vllm="KVCacheManager.allocate_slots",
    mistake="a block is cached although some of its tokens are drafts",
    replaces={"arithmetic.counts:tokens_to_cache": all_of_the_step},
    breaks=("cached_block_holds_its_key", "writer_is_alone", "counter_counts_only_cached"),
    cluster="drafts",
    trace_events=5,
)
