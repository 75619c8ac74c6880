"""vLLM 0.32.0, found by kvproof on the live connector. Without Mamba groups, vLLM trims P's list at
its front to the length of D's list, without regard to the number of kernel blocks per block. If a
block of P is wider than a block of D, the last entries of P's list are the padding of its last
block. D's blocks are then filled from later tokens, with or without a hit."""

from kvproof.model.arithmetic.algebra import Num, Truth, max_, min_
from kvproof.model.faults.claims import LISTS, claims
from kvproof.model.faults.fault import Fault


def by_count(
    local_first: Num,  # noqa: ARG001
    local_slots: Num,
    remote_first: Num,  # noqa: ARG001
    remote_slots: Num,
    equal_ratios: Truth = True,  # noqa: ARG001
) -> tuple[Num, Num, Num, Num]:
    """The last entries of P's list if D's list is shorter; otherwise the first entries of both."""
    have = min_(local_slots, remote_slots)
    start = max_(remote_slots - local_slots, 0)
    return (0, have, start, start + have)


FAULT = Fault(
    name="end_trim_across_ratios",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="NixlBaseConnectorWorker._apply_prefix_caching",
    mistake="with unequal kernel blocks per block, the padding of P's last block is paired",
    replaces={"arithmetic.counts:trim": by_count},
    breaks=(
        "paired_offsets_are_equal",
        "cached_block_holds_its_key",
        "request_reads_its_own_prefix",
    ),
    cluster="pd-ratio",
    trace_events=5,
    refutes=claims(LISTS, "lists_start_together"),
    concerns=lambda cluster: not any(engine.has_state for engine in cluster.engines),
)
