"""A hit on the whole prompt leaves no token to compute and sample from. In the offload connector,
vllm#44599 loaded a state and then computed the last token again."""

from kvproof.model.arithmetic.algebra import Num, round_down
from kvproof.model.faults.fault import Fault


def all_of_it(known: Num, hit_unit: Num, eagle_drop_tokens: int = 0) -> Num:  # noqa: ARG001
    """The prompt, rounded down to a unit, with its last token."""
    return round_down(known, hit_unit)


FAULT = Fault(
    name="hit_covers_whole_prompt",
    origin="vllm#44599",
    in_vllm="KVCacheManager.get_computed_blocks",
    mistake="a hit may cover the last token, and no token is left to compute",
    replaces={"arithmetic.counts:longest_hit_tokens": all_of_it},
    breaks=("every_request_can_finish", "step_makes_progress"),
    cluster="full",
    trace_events=5,
)
