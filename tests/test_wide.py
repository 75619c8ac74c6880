"""Episodes of many clusters: what is drawn, what is passed over, and what a violation has."""

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.presets.room import SUFFIX
from kvproof.strategies.run import Violated
from kvproof.strategies.sampling.wide import EPISODES, random_clusters, sample_many
from kvproof.strategies.verdict import Verdict
from tests.planted import under


def names(seed: int, number: int) -> list[str]:
    return [cluster.name for cluster in islice(random_clusters(seed), number)]


@pytest.mark.nightly
def test_each_preset_is_drawn_before_one_comes_again() -> None:
    one = names(0, 2 * len(CLUSTERS))
    assert sorted(name.removesuffix(SUFFIX) for name in one[::2]) == sorted(CLUSTERS)
    assert len(set(one[1::2])) == len(CLUSTERS)
    assert 0 < sum(name.endswith(SUFFIX) for name in one) < len(CLUSTERS)
    assert one[:40] == names(0, 40)
    assert one[:40] != names(1, 40)


def test_a_few_episodes_of_each_cluster_are_run_until_there_are_enough() -> None:
    done: list[int] = []
    outcome = sample_many(
        random_clusters(0),
        ModelMachine,
        examples=2 * EPISODES + 1,
        steps=5,
        progress=lambda n, _: done.append(n),
    )
    assert outcome.verdict is Verdict.SAMPLED
    assert list(outcome.coverage["clusters"].values()) == [EPISODES, EPISODES, 1]
    assert outcome.coverage["examples"] == done[-1] == 2 * EPISODES + 1
    assert outcome.coverage["unseen_at_most"] == 3 / (2 * EPISODES + 1)


def test_a_violation_has_its_cluster_and_is_told_before_it_is_shrunk() -> None:
    told: list[Violated] = []
    outcome = under(
        [FAULTS["double_free"]], sample_many, random_clusters(0), ModelMachine, failed=told.append
    )
    assert outcome.verdict is Verdict.VIOLATED
    assert outcome.cluster is not None
    assert list(outcome.coverage["clusters"])[-1] == outcome.cluster.name
    assert len(told) == 1
    assert len(told[0].events) >= len(outcome.events)


def test_a_cluster_with_a_later_feature_is_passed_over_and_named() -> None:
    def some(cluster: Cluster) -> ModelMachine:
        if cluster.disaggregated:
            raise AdapterDrift("This vLLM has no NIXL", later=True)
        return ModelMachine(cluster)

    outcome = sample_many(random_clusters(0), some, examples=20, steps=5)
    assert outcome.coverage["examples"] == 20
    why = set(outcome.coverage["clusters_undriven"].values())
    assert all(text.startswith("This vLLM has no NIXL.") for text in why)
    assert not set(outcome.coverage["clusters_undriven"]) & set(outcome.coverage["clusters"])


def test_any_other_drift_is_passed_on_although_clusters_were_driven() -> None:
    """A vLLM whose P/D cannot be driven is not one without violations."""

    def some(cluster: Cluster) -> ModelMachine:
        if cluster.disaggregated:
            raise AdapterDrift("This vLLM has no NIXL")
        return ModelMachine(cluster)

    with pytest.raises(AdapterDrift, match="no NIXL"):
        sample_many(random_clusters(0), some, examples=20, steps=5)


def test_the_command_says_which_clusters_it_drew(
    run: Callable[..., Any], as_json: Callable[..., Any]
) -> None:
    code, record = as_json("sample", "--examples", "10", "--steps", "5")
    assert code == 0
    assert record["config"] is None
    assert list(record["clusters"]) == names(0, 10 // EPISODES)
    _, out, _ = run("sample", "--examples", "10", "--steps", "5")
    assert f"{10 // EPISODES} clusters: {names(0, 1)[0]}, " in out
