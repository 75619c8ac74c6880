"""Random clusters: valid, reproducible, and of every kind."""

import pytest

from kvproof.model.config.features.registry import FEATURES, used_by
from kvproof.model.errors import UsageError
from kvproof.model.presets import cluster_named
from kvproof.model.presets.random_clusters import LAYOUTS, clusters_with, random_cluster
from kvproof.strategies.sampling.workloads import longest_prompt

SEEDS = range(300)


def test_one_seed_is_one_cluster_and_another_seed_another() -> None:
    clusters = [random_cluster(seed) for seed in SEEDS]
    assert clusters == [random_cluster(seed) for seed in SEEDS]
    assert len({c.engines for c in clusters}) > len(clusters) * 0.9


def test_a_cluster_is_found_by_its_name() -> None:
    assert cluster_named("random:7") == random_cluster(7)


@pytest.mark.parametrize("name", ["random:", "random:x", "random:-1", "random:1.5"])
def test_a_name_without_a_seed_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="has no seed"):
        cluster_named(name)


def test_every_layout_is_generated_alone_and_as_a_pair() -> None:
    kinds = {
        (c.disaggregated, tuple(g.kind for g in c.prefill.groups))
        for c in map(random_cluster, SEEDS)
    }
    layouts = {tuple("mamba" if k == "state" else k for k in layout) for layout in LAYOUTS}
    assert kinds == {(pair, layout) for pair in (False, True) for layout in layouts}


def test_a_prompt_fits_every_cluster() -> None:
    assert all(longest_prompt(random_cluster(seed).engines, 2) for seed in SEEDS)


def test_every_feature_is_generated() -> None:
    clusters = [random_cluster(seed) for seed in SEEDS]
    used = set().union(*map(used_by, clusters))
    assert used == set(FEATURES) - {"embeddings"}  # which is up to the jobs
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
