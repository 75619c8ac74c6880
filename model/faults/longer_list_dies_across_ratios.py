"""vLLM 0.32.0, found by kvproof on the live connector. Without Mamba groups, D's worker asserts
that its list is not longer than P's list. If a block of D is wider than a block of P, the padding
of D's last block makes D's list longer, and the engine dies. For a wider block of P, see
`end_trim_across_ratios`."""

from kvproof.model.arithmetic.algebra import if_, min_
from kvproof.model.faults.fault import Fault


def no_longer_than_remote(
    local_slots: int, remote_slots: int, local_ratio: int, remote_ratio: int
) -> int:
    """A limit only for unequal ratios; with equal ratios D's list is never longer."""
    return int(if_(local_ratio == remote_ratio, local_slots, min_(local_slots, remote_slots)))


FAULT = Fault(
    name="longer_list_dies_across_ratios",
    origin="kvproof, vLLM 0.32.0",
    mistake=(
        "with unequal kernel blocks per block, D asserts that its list is not longer than P's list"
    ),
    replaces=("longest_local_list", no_longer_than_remote),
    breaks=("engine_survives",),
    cluster="pd-ratio-decode",
    trace_events=5,
    dies_in=(
        "_apply_prefix_caching",
        "_read_blocks",
    ),
)
