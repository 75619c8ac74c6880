"""The table of features, and the random clusters that are drawn from it."""

import re

import pytest

from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.config.features import registry
from kvproof.model.config.features.registry import FEATURES, exclusions, used_by
from kvproof.model.errors import UsageError
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS, LIVE_CLUSTERS
from kvproof.model.presets.random_clusters import LAYOUTS, clusters_with, random_cluster
from kvproof.strategies.explorer.explorer import explore

FULL = Group("full", 2)
BASICS = {"name", "groups", "num_blocks", "engines", "jobs", "prompt", "max_tokens"}
"""Fields that every cluster has, and no feature."""
OPTIONS = {name for kind in (Group, EngineConfig, Job, Cluster) for name in kind.__struct_fields__}


def test_every_option_has_a_feature() -> None:
    words = [word for f in FEATURES.values() for word in re.findall(r"`(\w+)`", f.options)]
    assert set(words) <= OPTIONS
    assert set(words) == OPTIONS - BASICS


def test_what_a_refusal_says_of_a_feature_is_there() -> None:
    assert all(FEATURES[f].off for together, _ in exclusions() for f in together)
    needed = [(f, FEATURES[need]) for f in FEATURES.values() for need in f.needs]
    assert all(feature.off and need.on for feature, need in needed)
    assert all(f.on for f in FEATURES.values() if f.job_field)


def test_what_only_live_vllm_is_driven_with_is_refused_by_the_model() -> None:
    assert not any(map(registry.modelled, LIVE_CLUSTERS.values()))
    assert all(map(registry.modelled, CLUSTERS.values()))
    for run in ModelMachine, explore:
        with pytest.raises(UsageError) as refused:
            run(LIVE_CLUSTERS["partial-store"])
        assert str(refused.value) == (
            "Engine E combines hits inside a block and a store, which kvproof does not model. Use "
            "one block_size for all groups and match_unit 0, or store false, or --machine live."
        )


# Random clusters


SEEDS = range(300)


def test_one_seed_is_one_cluster_and_another_seed_another() -> None:
    clusters = [random_cluster(seed) for seed in SEEDS]
    assert clusters == [random_cluster(seed) for seed in SEEDS]
    assert len({c.engines for c in clusters}) > len(clusters) * 0.9


def test_every_layout_is_generated_alone_and_as_a_pair() -> None:
    kinds = {
        (c.disaggregated, tuple(g.kind for g in c.prefill.groups))
        for c in map(random_cluster, SEEDS)
    }
    layouts = {tuple("mamba" if k == "state" else k for k in layout) for layout in LAYOUTS}
    assert kinds == {(pair, layout) for pair in (False, True) for layout in layouts}


def test_every_feature_is_generated() -> None:
    clusters = [random_cluster(seed) for seed in SEEDS]
    used = set().union(*map(used_by, clusters))
    assert used == set(FEATURES) - {"embeddings", "stops"}  # which are up to the jobs
    assert any(c.failures and c.prefill.store for c in clusters)
    engines = [e for c in clusters for e in c.engines]
    assert any(len({g.block_size for g in e.groups}) > 1 and not e.has_state for e in engines)
    for pair in (False, True):
        those = [e for e in engines if e.connected == pair]
        assert any(e.overlaps for e in those)
        assert any(e.lookahead for e in those)
        assert any(e.drafts and not e.lookahead for e in those)


def test_a_drafter_has_layers_where_a_start_up_of_vllm_has_them() -> None:
    """In all attention groups: vLLM 0.32.0 marks none of several as the drafter's."""
    engines = [engine for seed in SEEDS for engine in random_cluster(seed).engines]
    assert any(len(engine.groups) > 1 and engine.lookahead for engine in engines)
    assert not any(engine.drafter_is_apart for engine in engines)


def test_unequal_kernel_blocks_beside_states_leave_d_without_a_cache() -> None:
    """vLLM refuses a D that caches prefixes there."""
    features = frozenset({"kernel_blocks", "prefix_checkpoint"})
    made = [cluster for seed in "abcdef" for cluster in clusters_with(features, 12, seed)]
    assert made
    for cluster in made:
        assert cluster.prefill.prefix_checkpoint
        assert not cluster.decode.prefix_caching
