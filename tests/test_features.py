"""The table of features: complete, and the source of the refusals, the page and the clusters."""

import re
from collections.abc import Iterator

import pytest

from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.config.feature import Exclusion, Feature
from kvproof.model.config.features import registry
from kvproof.model.config.features.registry import FEATURES, exclusions, used_by
from kvproof.model.errors import UsageError
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS, LIVE_CLUSTERS
from kvproof.model.presets.random_clusters import random_cluster
from kvproof.strategies.explorer.explorer import explore
from tests.reference.features import table

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


ODD = Feature(
    id="odd_limits",
    name="odd limits",
    words="a limit of three requests",
    options="`max_requests`",
    of=EngineConfig,
    used=lambda engine: engine.policy == "priority" and engine.max_requests == 3,
    off="max_requests 2",
    exclusions=(Exclusion(beside=("store",)),),
    draw=lambda settings: settings.on_engines(policy="priority", max_requests=3),
)


@pytest.fixture
def odd_limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """One more entry of the table."""
    monkeypatch.setitem(FEATURES, ODD.id, ODD)
    exclusions.cache_clear()
    yield ODD.id
    exclusions.cache_clear()


def test_a_new_feature_is_one_entry(odd_limits: str) -> None:
    with pytest.raises(UsageError) as refused:
        EngineConfig("E", (FULL,), policy="priority", max_requests=3, store=True)
    assert str(refused.value) == (
        "Engine E combines odd limits and a store, which kvproof does not model. "
        "Use max_requests 2, or store false."
    )
    assert "| a limit of three requests | `max_requests` |  | a store |  |" in table()
    clusters = [c for c in map(random_cluster, range(200)) if odd_limits in used_by(c)]
    assert clusters
    assert not any("store" in used_by(c) for c in clusters)


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
