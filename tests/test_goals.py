"""Coverage goals: each is met in the preset that it names, and not where its feature is missing."""

import functools

import pytest

from kvproof.invariants.goals import GOALS, Goal, goals_of
from kvproof.model.config.features.registry import FEATURES, used_by
from kvproof.model.presets import CLUSTERS
from kvproof.model.step import Step
from tests.breadth_first import search

pytestmark = pytest.mark.exhaustive

WITHOUT_GOAL = {"full_attention", "chunked_prefill", "no_prefix_cache", "prefix_checkpoint"}
"""Features that nearly all presets use, the one that only takes hits away, and one of live vLLM."""


@functools.cache
def met(name: str) -> frozenset[str]:
    """The ids of all goals that happen in a preset, those included that are said to be impossible
    there."""
    cluster = CLUSTERS[name]
    found: set[str] = set()

    def note(step: Step) -> None:
        for goal in GOALS.values():
            if goal.kind is type(step.event) and goal.seen(cluster, step, step.event):
                found.add(goal.id)

    assert not search(cluster, [], 100_000, on_step=note).cut
    return frozenset(found)


@pytest.mark.parametrize("goal", GOALS.values(), ids=list(GOALS))
def test_a_goal_is_met_where_its_feature_is_and_not_where_it_is_missing(goal: Goal) -> None:
    assert goal.id in met(goal.met_in)
    assert goal in goals_of(CLUSTERS[goal.met_in])
    assert goal.id not in met(goal.not_met_in)


@pytest.mark.parametrize("feature", sorted(set(FEATURES) - WITHOUT_GOAL))
def test_every_feature_has_a_goal_that_is_met_with_it_and_not_without(feature: str) -> None:
    with_it = [g for g in GOALS.values() if feature in used_by(CLUSTERS[g.met_in])]
    assert any(feature not in used_by(CLUSTERS[g.not_met_in]) for g in with_it)
