"""What vLLM 0.32.0 does, found by kvproof on the live connector. Lists of a hybrid model are cut by
count: from the end where a block has as many kernel blocks on P as on D, from the front where it
has not. After a partial hit on D the front of P's list is not what D lacks, and every block of the
load is filled from tokens before it. vLLM's source marks the case as still to be done; nothing
keeps a request from getting there."""

from kvproof.model.algebra import Num, Truth, both, if_, max_, min_
from kvproof.model.faults.fault import Fault


def by_count(
    local_first: Num,  # noqa: ARG001
    local_slots: Num,
    remote_first: Num,  # noqa: ARG001
    remote_slots: Num,
    equal_ratios: Truth = True,
) -> tuple[Num, Num, Num, Num]:
    """The end of P's list where ratios are equal and D's is shorter, else the front of both."""
    from_end = both(equal_ratios, local_slots < remote_slots)
    have = min_(local_slots, remote_slots)
    start = if_(from_end, max_(remote_slots - local_slots, 0), 0)
    return (0, have, start, if_(from_end, remote_slots, have))


FAULT = Fault(
    name="front_trim_across_ratios",
    born_of="kvproof, vLLM 0.32.0",
    mistake="with unequal kernel blocks per block, lists are paired from the front after a hit",
    replaces=("trim", by_count),
    breaks=(
        "paired_offsets_are_equal",
        "cached_block_holds_its_key",
        "request_reads_its_own_prefix",
    ),
    cluster="pd-ratio",
)
