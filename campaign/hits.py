"""Hits, in words: how often a beginning had to come until it was found in the cache.

What a run stores is of use only if a later prompt finds it. Which blocks it takes depends on the
cache groups and on some features of the cluster.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from kvproof.model.config import Cluster
from kvproof.model.config.features.registry import used_by
from kvproof.model.step import Admission, Step

DEPENDS = {
    "drafts",
    "eagle",
    "hash_lookahead",
    "partial_block_hits",
    "prefix_checkpoint",
    "retention",
}
"""The features that decide which blocks are stored, or which of them a hit takes."""


def hits(cluster: Cluster, steps: Sequence[Step]) -> Iterator[str]:
    """The hits of a run that no earlier prompt had, though it begins with the same tokens: one line
    for each of the features."""
    features = sorted(DEPENDS & used_by(cluster)) or ["none"]
    came: defaultdict[str, dict[str, Admission]] = defaultdict(dict)
    for admission in (each for step in steps for each in step.effects.admissions):
        earlier = came[admission.engine]
        if admission.request in earlier:
            continue  # it was preempted, and finds its own blocks
        hit = admission.tokens[: admission.hit]
        alike = [each for each in earlier.values() if hit and each.tokens.startswith(hit)]
        if alike and all(each.hit < admission.hit for each in alike):
            whole = any(admission.tokens.startswith(each.tokens) for each in alike)
            time = "second" if len(alike) == 1 else "third or a later"
            for feature in features:
                yield f"{feature}: a {'prompt' if whole else 'beginning'} hits the {time} time"
        earlier[admission.request] = admission
