"""What vLLM 0.32.0 does, found by kvproof on the live connector. Where a block has not as many
kernel blocks on P as on D, the worker takes any difference between the two lists for padding, and
asserts that it is no more than padding can be. After a hit on D the difference is the hit: a long
one kills the engine. (A short one goes unnoticed, see `front_trim_across_ratios`.)"""

from kvproof.model.faults.fault import Fault


def no_more_than_padding(
    local_slots: int, remote_slots: int, local_ratio: int, remote_ratio: int
) -> bool:
    """Equal ratios with a shorter list on D, or a difference that padding could explain."""
    if local_ratio == remote_ratio and local_slots < remote_slots:
        return True
    return abs(local_slots - remote_slots) <= local_ratio + remote_ratio


FAULT = Fault(
    name="long_hit_dies_across_ratios",
    born_of="kvproof, vLLM 0.32.0",
    mistake="with unequal kernel blocks per block, a hit counts as padding and must be short",
    replaces=("lists_can_be_paired", no_more_than_padding),
    breaks=("engine_survives",),
    cluster="pd-ratio-hitting",
)
