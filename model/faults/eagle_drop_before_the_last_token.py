"""vLLM 0.32.0 with one cache group and an EAGLE drafter looks up a hit that ends before the last
token, as it does without a drafter, and then drops the last matched block. A prompt that ends on a
block boundary loses one block more than necessary. With several groups vLLM does not lose it."""

from kvproof.model import config
from kvproof.model.config import Cluster
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks.prefix_hits import longest_possible


def one_group_and_a_drafter(cluster: Cluster) -> bool:
    """Whether an engine has one cache group and a drafter's layers in it."""
    return any(engine.eagle_drop_tokens and len(engine.groups) == 1 for engine in cluster.engines)


def without_the_last_token(cfg: config.EngineConfig, tokens: str) -> int:
    """With one group and a drafter, the longest hit of the prompt without its last token."""
    shorter = cfg.eagle_drop_tokens and len(cfg.groups) == 1
    return longest_possible(cfg, tokens[:-1] if shorter else tokens)


FAULT = Fault(
    name="eagle_drop_before_the_last_token",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="UnitaryKVCacheCoordinator.find_longest_cache_hit",
    mistake="with one group, the matched block that is dropped must end before the last token",
    replaces={"reference.blocks.prefix_hits:longest_possible": without_the_last_token},
    breaks=("hit_is_the_longest", "repeated_prompt_hits"),
    cluster="drafts-aligned",
    trace_events=3,
    concerns=one_group_and_a_drafter,
)
