"""#51771: one of three groups answers 0 to its first question after a drop, and the fixed point is
0."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="hit_collapses_with_three_groups",
    origin="vllm#51771",
    mistake="with three groups the search for a common hit ends at 0",
    replaces=("settled_hit", lambda hit, groups: 0 if groups > 2 else hit),
    breaks=("hit_is_the_longest",),
    cluster="three",
    trace_events=3,
)
