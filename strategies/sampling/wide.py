"""Episodes of many clusters: a few of each, so that many combinations of features are driven.

A mistake may need two features that random clusters seldom have together. So each random cluster is
chosen among several, by the pairs of features that were driven least so far.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import combinations, count, cycle, islice
from random import Random

from kvproof.invariants.check import Check
from kvproof.invariants.registry import CHECKS
from kvproof.model.config import Cluster
from kvproof.model.config.features.registry import modelled, used_by
from kvproof.model.errors import AdapterDrift
from kvproof.model.machine import MakeMachine
from kvproof.model.presets import CLUSTERS, LIVE_CLUSTERS, cluster_named
from kvproof.model.presets.room import roomy
from kvproof.strategies.run import Violated
from kvproof.strategies.sampling.stateful import Covered, Progress, sample
from kvproof.strategies.verdict import Outcome, Verdict

EPISODES = 2
"""The number of random episodes of one cluster."""

CANDIDATES = 20
"""The number of random clusters of which one is driven."""

ROOMY = 4
"""One in this number of clusters has room, so that stored blocks stay in the cache."""

SEEDS = 1_000_003
"""The number of random clusters reserved for each seed. Two searches with different seeds have no
random cluster in common, unless they are very long."""


def random_clusters(seed: int, live: bool = False) -> Iterator[Cluster]:
    """An endless sequence of clusters: presets in an order that the seed shuffles, with random
    clusters between them; some of both have room. With `live`, the clusters that only live vLLM can
    be driven with are included."""
    pairs = Pairs()
    presets = [*CLUSTERS, *(LIVE_CLUSTERS if live else ())]
    Random(seed).shuffle(presets)
    names = (f"random:{number}" for number in count(seed * SEEDS))
    random = (c for c in map(cluster_named, names) if live or modelled(c))
    rooms = Random(f"{seed}:roomy")

    def turns() -> Iterator[Cluster]:
        for name in cycle(presets):
            yield cluster_named(name)
            yield max(islice(random, CANDIDATES), key=pairs.novelty)

    for cluster in turns():
        pairs.driven(cluster)
        yield cluster if rooms.randrange(ROOMY) else roomy(cluster)


class Pairs:
    """How often each pair of features was driven."""

    def __init__(self) -> None:
        self._times: Counter[tuple[str, str]] = Counter()

    def novelty(self, cluster: Cluster) -> float:
        """The mean over the features of a cluster of how rarely their pairs were driven. The sum is
        divided by the number of features, because in a cluster with many features one feature hides
        the effect of another."""
        features = _features(cluster)
        new = sum(1 / (1 + self._times[pair]) ** 2 for pair in _pairs(features))
        return new / max(len(features), 1)

    def driven(self, cluster: Cluster) -> None:
        """Count the pairs of a cluster."""
        self._times.update(_pairs(_features(cluster)))


def _features(cluster: Cluster) -> set[str]:
    """The features of a cluster. Failures count as two features, by what vLLM does after one."""
    features = used_by(cluster)
    if not cluster.failures:
        return features
    return features - {"failures"} | {f"failures: {cluster.load_failure}"}


def _pairs(features: Iterable[str]) -> Iterator[tuple[str, str]]:
    return combinations(sorted(features), 2)


def sample_many(
    clusters: Iterable[Cluster],
    make_machine: MakeMachine,
    invariants: Iterable[Check] | None = None,
    seed: int = 0,
    examples: int = 1_000,
    steps: int = 40,
    progress: Progress | None = None,
    failed: Callable[[Violated], None] | None = None,
) -> Outcome:
    """Run `EPISODES` episodes of each cluster (see `sample`) until there are `examples` of them, or
    one finds a violation. Clusters with a feature that came after the release that is tested in
    full are passed over where this vLLM lacks it.

    The coverage also has the number of episodes by cluster, and why the others were not driven.
    Raises AdapterDrift if this vLLM lacks anything else, since nothing is then known of it.
    """
    chosen = None if invariants is None else tuple(invariants)
    covered = Covered(examples, progress, CHECKS.values() if chosen is None else chosen)
    by_cluster: Counter[str] = Counter()
    undriven: dict[str, str] = {}
    seconds = 0.0
    for number, cluster in enumerate(clusters):
        before = covered.examples
        try:
            found = sample(
                cluster,
                make_machine,
                chosen,
                seed=seed * SEEDS + number,
                examples=min(EPISODES, examples - before),
                steps=steps,
                failed=failed,
                covered=covered,
            )
        except AdapterDrift as drift:
            if not drift.later:
                raise
            undriven[cluster.name] = str(drift)
            continue
        seconds += found.seconds
        by_cluster[cluster.name] += covered.examples - before
        if found.verdict is not Verdict.SAMPLED or covered.examples >= examples:
            break
    coverage = covered.coverage() | {"clusters": dict(by_cluster)}
    if undriven:
        coverage["clusters_undriven"] = undriven
    return replace(found, coverage=coverage, seconds=seconds)
