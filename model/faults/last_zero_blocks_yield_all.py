"""vllm#42554 (review, not fixed there): the slice `remote[-n:]` with n = 0 is the whole list. If D
hits all tokens that P offers, D needs no block, and its empty lists are paired with all blocks of
P."""

from kvproof.model.arithmetic.algebra import Num, Truth, if_, max_
from kvproof.model.faults.claims import LISTS, claims
from kvproof.model.faults.fault import Fault


def last_of_remote(
    local_first: Num,  # noqa: ARG001
    local_slots: Num,
    remote_first: Num,  # noqa: ARG001
    remote_slots: Num,
    equal_ratios: Truth = True,  # noqa: ARG001
) -> tuple[Num, Num, Num, Num]:
    """All of D's list, and as many entries from the end of P's list; all of P's list if D's list is
    empty."""
    start = if_(local_slots == 0, 0, max_(remote_slots - local_slots, 0))
    return (0, local_slots, start, remote_slots)


FAULT = Fault(
    name="last_zero_blocks_yield_all",
    origin="vllm#42554",
    in_vllm="NixlBaseConnectorWorker._apply_prefix_caching",
    mistake="the slice of the last 0 blocks of a list is the whole list",
    replaces={"arithmetic.counts:trim": last_of_remote},
    breaks=("paired_lists_are_equal",),
    cluster="pd-hitting",
    also_in=("pd-remnant",),
    trace_events=13,
    refutes=claims(LISTS, "lists_are_equally_long", "lists_start_together"),
)
