"""What vLLM 0.32.0 does, found by kvproof on the live connector. Without Mamba groups D's worker
asserts that its list is no longer than P's. Where a block of D is wider than one of P, the padding
of D's last block makes it longer, and the engine dies. (Where P's is wider, see
`end_trim_across_ratios`.)"""

from kvproof.model.arithmetic.algebra import if_, min_
from kvproof.model.faults.fault import Fault


def no_longer_than_remote(
    local_slots: int, remote_slots: int, local_ratio: int, remote_ratio: int
) -> int:
    """Where ratios are unequal; equal ones never make D's list longer."""
    return int(if_(local_ratio == remote_ratio, local_slots, min_(local_slots, remote_slots)))


FAULT = Fault(
    name="longer_list_dies_across_ratios",
    origin="kvproof, vLLM 0.32.0",
    mistake="with unequal kernel blocks per block, D's list may not be longer than P's",
    replaces=("longest_local_list", no_longer_than_remote),
    breaks=("engine_survives",),
    cluster="pd-ratio-decode",
    trace_events=5,
    dies_in=(
        "_apply_prefix_caching",
        "_read_blocks",
    ),
)
