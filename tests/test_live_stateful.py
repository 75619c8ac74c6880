"""Live vLLM driven at random: green but for the known findings, and each step one of the proofs.

Runs on each release that is driven; other tests want the one that is tested in full. A failing run
is printed as it was found; `kvproof sample --machine live --config random:SEED` finds a short one.
"""

from itertools import count, islice

import pytest
from hypothesis import settings
from msgspec.structs import replace

from kvproof.invariants.registry import CHECKS
from kvproof.model.config import Cluster, EngineConfig, Group
from kvproof.model.presets import CLUSTERS
from kvproof.model.presets.random_clusters import random_cluster
from kvproof.strategies.count_conformance import conformance_checks
from tests.cover import PRESETS, others_nightly
from tests.driving import check_machine
from tests.planted import asked_under
from tests.watching import Counting, is_later, is_undriven, known_faults, watched

pytestmark = [pytest.mark.stateful, pytest.mark.live]


SCOPES = {replace(c, name="scope", jobs=()): c for c in CLUSTERS.values()}
"""Presets that differ in more than their jobs, which are drawn here."""

RANDOM_CLUSTERS = 40


def _eagle(size: int) -> tuple[Group, ...]:
    full, window = Group("full", size, eagle=True), Group("window", size, window=4, eagle=True)
    return full, full, window, Group("mamba", size)


def _one(*groups: Group, num_blocks: int, chunk_tokens: int, **options: object) -> EngineConfig:
    return EngineConfig("E", groups, num_blocks, "both", chunk_tokens, **options)  # type: ignore[arg-type]


ONCE_WRONG = [
    Cluster(
        "uncached-drafts",
        (_one(*_eagle(4), num_blocks=40, chunk_tokens=3, prefix_caching=False, drafts=1),),
    ),
    Cluster("drafts", (_one(*_eagle(8), num_blocks=24, chunk_tokens=2, drafts=1),), aborts=True),
    Cluster(
        "limited-sessions",
        (_one(Group("full", 2), num_blocks=9, chunk_tokens=2, max_requests=2),),
        evictions=True,
        sessions=True,
    ),
]
"""Clusters that showed a mistake of kvproof when they were first generated."""


RANDOM = [random_cluster(seed) for seed in range(RANDOM_CLUSTERS)]
ALL = [*SCOPES.values(), *RANDOM, *ONCE_WRONG]
EVERYWHERE = [cluster for cluster in ALL if not is_later(cluster)]
FEW = [*(CLUSTERS[name] for name in PRESETS), *RANDOM[:8], *ONCE_WRONG]
"""What `make test` drives; `make nightly` drives all."""

LATER = [
    *(cluster for cluster in SCOPES.values() if is_later(cluster)),
    *islice(filter(is_later, map(random_cluster, count())), 2),
]
"""Presets, and the first two random clusters, with a feature that came later."""


def drive(cluster: Cluster) -> None:
    """Few episodes of each cluster: clusters differ more than episodes."""
    examples = max(settings().max_examples // 10, 5)
    machines: list[Counting] = []

    def make(cluster: Cluster) -> Counting:
        machines.append(watched(cluster))
        return machines[-1]

    checks = (*CHECKS.values(), *asked_under(known_faults(cluster), conformance_checks()))
    check_machine(cluster, make, checks, examples=examples, shrink=False)
    assert len(machines) >= examples
    assert sum(machine.judged for machine in machines) > 0


@pytest.mark.parametrize("cluster", others_nightly(EVERYWHERE, FEW), ids=lambda c: c.name)
def test_live_vllm_satisfies_the_spec_but_for_the_known_findings(cluster: Cluster) -> None:
    drive(cluster)


@pytest.mark.parametrize("cluster", LATER, ids=lambda c: c.name)
def test_a_feature_of_a_later_release_satisfies_the_spec_or_is_unknown(cluster: Cluster) -> None:
    if not is_undriven(cluster):
        drive(cluster)
