"""A preemption reset the computed tokens of a request and not a counter beside them (vllm#36752,
there the counter of its statistics). Here it is the one of cached blocks: the request has none, and
those it gets next are never cached."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.fault import Fault


def as_it_was(counted: Num) -> Num:
    """The blocks counted before."""
    return counted


FAULT = Fault(
    name="preemption_keeps_counter",
    born_of="vllm#36752",
    mistake="a preempted request keeps its count of cached blocks",
    replaces=("counted_after_preemption", as_it_was),
    breaks=("counter_counts_only_cached",),
    cluster="pd-preempting",
)
