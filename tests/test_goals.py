"""Coverage goals: each is met in the preset that it names, and not where its feature is missing."""

import functools

import pytest

from kvproof.invariants.goals import GOALS, Goal, goals_of
from kvproof.model.config.features.registry import FEATURES, used_by
from kvproof.model.presets import CLUSTERS
from kvproof.model.step import Step
from tests.breadth_first import search
from tests.planted import under

pytestmark = pytest.mark.exhaustive

MET = {
    "full": {"full_hit", "pool_filled"},
    "full-evicting": {"eviction"},
    "window": {"preemption", "partial_hit", "full_hit", "eviction", "pool_filled", "left_behind"},
    "state": {
        *("preemption", "pool_filled", "chunked_prefill", "uncached_state_read", "block_erased"),
    },
    "ngram-drafts": {
        *("draft_accepted", "draft_rejected", "partial_hit", "full_hit"),
        *("pool_filled", "preemption"),
    },
    "pd-full": {"full_hit", "trimmed_transfer"},
    "pd-stray": {"aborted_load", "aborted_run", "stray_report"},
}
"""What happens in a preset, and nothing else does."""

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


@pytest.mark.parametrize("name", MET)
def test_what_a_preset_meets(name: str) -> None:
    assert met(name) == MET[name]


def unshortened(prompt: int, *_: int) -> int:
    """A prompt that P computes to its end."""
    return prompt


def untrimmed(_local_first: int, local: int, _remote_first: int, remote: int, *_: bool):
    """The slices of two lists that are paired as they are."""
    return 0, local, 0, remote


@pytest.mark.parametrize(
    ("name", "replaced", "wrong", "lost"),
    [
        ("pd-embeds", "arithmetic.counts:prompt_after_truncation", unshortened, "truncation"),
        (
            *("hybrid-siblings", "reference.blocks.prefix_hits:shared_prefix_boundary"),
            *(lambda *_: 0, "shared_prefix_boundary_kept"),
        ),
        ("pd-full", "arithmetic.counts:trim", untrimmed, "trimmed_transfer"),
        ("window", "reference.blocks.prefix_hits:holds", lambda *_: False, "full_hit"),
        (
            *("partial-tight", "reference.blocks.partial_block_hits:goes_on_from_cached"),
            *(lambda *_: False, "cached_state_copied"),
        ),
        ("events-sparse", "arithmetic.counts:is_retained", lambda *_: True, "block_not_retained"),
    ],
)
def test_what_the_reference_no_longer_does_is_missed(name, replaced, wrong, lost) -> None:
    assert lost in met(name)
    assert lost not in under({replaced: wrong}, met.__wrapped__, name)


@pytest.mark.parametrize("feature", sorted(set(FEATURES) - WITHOUT_GOAL))
def test_every_feature_has_a_goal_that_is_met_with_it_and_not_without(feature: str) -> None:
    with_it = [g for g in GOALS.values() if feature in used_by(CLUSTERS[g.met_in])]
    assert any(feature not in used_by(CLUSTERS[g.not_met_in]) for g in with_it)
