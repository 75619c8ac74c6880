"""vllm#51771: after the hit was reduced, one of three groups answers 0 to the first lookup, and the
search for a common hit ends at 0 tokens."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="hit_collapses_with_three_groups",
    origin="vllm#51771",
    mistake="with three groups, the search for a common hit ends at 0 tokens",
    replaces=("settled_hit", lambda hit, groups: 0 if groups > 2 else hit),
    breaks=("hit_is_the_longest",),
    cluster="three",
    trace_events=3,
)
