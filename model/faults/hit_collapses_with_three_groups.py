"""vllm#51771: after the hit was reduced, one of three groups answers 0 to the first lookup, and the
search for a common hit ends at 0 tokens."""

from kvproof.model import config
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks.prefix_hits import longest_together
from kvproof.model.state import Engine


def none_in_three(cfg: config.EngineConfig, engine: Engine, tokens: str) -> int:
    """No hit, where there are three groups."""
    return 0 if len(cfg.groups) > 2 else longest_together(cfg, engine, tokens)


FAULT = Fault(
    name="hit_collapses_with_three_groups",
    origin="vllm#51771",
    in_vllm="HybridKVCacheCoordinator.find_longest_cache_hit",
    mistake="with three groups, the search for a common hit ends at 0 tokens",
    replaces={"reference.blocks.prefix_hits:longest_together": none_in_three},
    breaks=("hit_is_the_longest",),
    cluster="three",
    trace_events=3,
)
