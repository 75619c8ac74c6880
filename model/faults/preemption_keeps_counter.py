"""A preemption reset the computed tokens of a request but not a second counter (vllm#36752, there a
counter of its statistics). Here the second counter is `num_cached_blocks`: the preempted request
has no blocks, and its next blocks are never cached."""

from kvproof.model.counting_abstraction.table import TableCounts, TableSizes
from kvproof.model.counting_abstraction.table_system import preempted as preempted_in_counts
from kvproof.model.faults.claims import CACHING, claims
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.scheduling.preemption import preempted
from kvproof.model.state import Request


def with_its_counter(request: Request) -> Request:
    """The counters of all groups stay as they were before the preemption."""
    counted = request.num_cached_blocks
    return preempted(request)._replace(num_cached_blocks=counted if any(counted) else ())


def with_its_counter_in_counts(sizes: TableSizes, t: TableCounts) -> TableCounts:
    """The counter stays as it was before the preemption."""
    return preempted_in_counts(sizes, t)._replace(num_cached_blocks=t.num_cached_blocks)


FAULT = Fault(
    name="preemption_keeps_counter",
    origin="vllm#36752",
    in_vllm="Scheduler._preempt_request",
    mistake="a preempted request keeps its number of cached blocks",
    replaces={
        "reference.scheduling.preemption:preempted": with_its_counter,
        "counting_abstraction.table_system:preempted": with_its_counter_in_counts,
    },
    breaks=("counter_counts_only_cached",),
    cluster="pd-preempting",
    trace_events=9,
    refutes=claims(CACHING, "counter_counts_full_blocks", "no_blocks_without_tokens")
    | claims("full", "full_attention_keeps_all"),
    refutes_in_turn=claims("full", "hashed_are_counted"),
)
