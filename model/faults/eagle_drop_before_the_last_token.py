"""vLLM 0.32.0 with one cache group and an EAGLE drafter looks up a hit that ends before the last
token, as it does without a drafter, and then drops the last matched block. A prompt that ends on a
block boundary loses one block more than necessary. With several groups vLLM does not lose it."""

from kvproof.model.config import Cluster
from kvproof.model.faults.fault import Fault


def one_group_and_a_drafter(cluster: Cluster) -> bool:
    """Whether an engine has one cache group and a drafter's layers in it."""
    return any(engine.eagle_drop_tokens and len(engine.groups) == 1 for engine in cluster.engines)


FAULT = Fault(
    name="eagle_drop_before_the_last_token",
    origin="kvproof, vLLM 0.32.0",
    mistake="with one group, the matched block that is dropped must end before the last token",
    replaces=("matched_tokens", lambda known, groups: known - 1 if groups == 1 else known),
    breaks=("hit_is_the_longest", "repeated_prompt_hits"),
    cluster="drafts-aligned",
    trace_events=3,
    concerns=one_group_and_a_drafter,
)
