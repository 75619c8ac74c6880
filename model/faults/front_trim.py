"""The push connector aligned by the shorter length from the front (#48633, C3): P's prefix went
into D's suffix whenever D had a hit."""

from kvproof.model.arithmetic.algebra import Num, Truth, min_
from kvproof.model.faults.claims import LISTS, claims
from kvproof.model.faults.fault import Fault


def from_the_front(
    local_first: Num,  # noqa: ARG001
    local_slots: Num,
    remote_first: Num,  # noqa: ARG001
    remote_slots: Num,
    equal_ratios: Truth = True,  # noqa: ARG001
) -> tuple[Num, Num, Num, Num]:
    """As many as both have, from the start of both."""
    both_have = min_(local_slots, remote_slots)
    return (0, both_have, 0, both_have)


FAULT = Fault(
    name="front_trim",
    origin="vllm#48633",
    mistake="the lists are paired from the front, so a partial hit shifts every block",
    replaces=("trim", from_the_front),
    breaks=(
        "paired_offsets_are_equal",
        "request_reads_its_own_prefix",
    ),
    cluster="pd-full",
    trace_events=9,
    refutes=claims(LISTS, "lists_start_together"),
)
