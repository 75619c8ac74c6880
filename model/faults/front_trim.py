"""vllm#48633: the push connector paired both lists from the front, up to the shorter length.
When D had a hit, P's first blocks were written to D's last blocks."""

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
    """The first entries of both lists, up to the shorter length."""
    both_have = min_(local_slots, remote_slots)
    return (0, both_have, 0, both_have)


FAULT = Fault(
    name="front_trim",
    origin="vllm#48633",
    in_vllm="NixlBaseConnectorWorker._apply_prefix_caching",
    mistake="the lists are paired from the front, so a partial hit shifts every block",
    replaces={"arithmetic.counts:trim": from_the_front},
    breaks=(
        "paired_offsets_are_equal",
        "request_reads_its_own_prefix",
    ),
    cluster="pd-full",
    trace_events=9,
    refutes=claims(LISTS, "lists_start_together"),
)
