"""A mistake in `model.counts` that the whole model makes, the scheduler, the memory and the systems
of counts alike, is noticed by an invariant: they compute for themselves what they need.

`test_shared_arithmetic` has a definition for each function, and what no invariant can see: a window
that offers a block more or less (only one that begins on no boundary needs them all)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from kvproof.invariants.registry import INVARIANTS
from kvproof.model.arithmetic import counts
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.verdict import Verdict
from tests.planted import under

pytestmark = pytest.mark.exhaustive


def more(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, one too many."""
    return lambda *given: function(*given) + 1


def less(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, one too few."""
    return lambda *given: function(*given) - 1


def late(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a first number that is one too large."""
    return lambda first, *rest: function(first + 1, *rest)


def swapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of its first two numbers in the wrong order."""
    return lambda a, b, *rest: function(b, a, *rest)


def nothing(_function: Callable[..., Any]) -> Callable[..., Any]:
    """Always none."""
    return lambda *_given: 0


def opposite(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, denied."""
    return lambda *given: not function(*given)


class Planted(NamedTuple):
    """A mistake in a function, a cluster in which it shows, and what breaks there."""

    name: str
    mistake: Callable[[Callable[..., Any]], Callable[..., Any]]
    cluster: str
    breaks: str


PLANTED = (
    Planted("blocks_for_tokens", more, "full", "table_fits_its_tokens"),
    Planted("full_blocks", more, "async", "cached_block_holds_its_key"),
    Planted("settled_tokens", more, "window", "null_block_is_nobody"),
    Planted("tokens_skipped_by_window", more, "window", "null_block_is_nobody"),
    Planted("tokens_skipped_by_state", more, "hybrid", "null_block_is_nobody"),
    Planted("window_blocks_for_hit", more, "sparse-window", "hit_is_the_longest"),
    Planted("window_blocks_for_hit", less, "window", "hit_holds_in_every_group"),
    Planted("serves_a_hit", opposite, "unequal", "repeated_prompt_hits"),
    Planted("is_retained", opposite, "sparse-window", "repeated_prompt_hits"),
    Planted("longest_hit_tokens", swapped, "full", "hit_is_the_longest"),
    Planted("tokens_to_cache", more, "full", "cached_block_holds_its_key"),
    Planted("cacheable_tokens", more, "drafts", "cached_key_can_be_hit"),
    Planted("hashed_tokens", more, "lookahead-hashes", "drafter_holds_its_key"),
    Planted("computed_after_drafts", more, "drafts", "cached_block_holds_its_key"),
    Planted("tokens_loaded_by_decode", less, "pd", "offered_tokens_are_loaded"),
    Planted("prompt_after_truncation", more, "pd", "prefill_and_decode_agree"),
    Planted("blocks_counted_after_hit", more, "partial", "repeated_prompt_hits"),
    Planted("align_chunk", late, "hybrid", "cached_block_holds_its_key"),
    Planted("align_chunk", less, "hybrid", "step_makes_progress"),
    Planted("tail_chunk", less, "hybrid", "step_makes_progress"),
    Planted("attention_blocks_predicted", more, "full", "table_fits_its_tokens"),
    Planted("attention_blocks_predicted", less, "async", "writer_is_alone"),
    Planted("state_blocks_predicted", more, "hybrid", "table_fits_its_tokens"),
    Planted("trim", late, "pd-full", "paired_offsets_are_equal"),
    Planted("logical_block", late, "pd-full", "writer_is_alone"),
    Planted("state_slots_moved", more, "pd", "null_block_is_nobody"),
    Planted("tokens_offered", more, "turns", "prefill_and_decode_agree"),
    Planted("held_tokens_loaded", less, "turns", "offered_tokens_are_loaded"),
    Planted("resumed_at", less, "pd", "state_read_is_state_at_computed"),
    Planted("needed_from_load", more, "pd", "null_block_is_nobody"),
    Planted("copies_of_hit", nothing, "partial", "writer_is_alone"),
)


@pytest.mark.parametrize(
    "planted", PLANTED, ids=[f"{p.name}-{p.mistake.__name__}" for p in PLANTED]
)
def test_an_invariant_notices(planted: Planted) -> None:
    wrong = {f"arithmetic.counts:{planted.name}": planted.mistake(getattr(counts, planted.name))}
    checks = [INVARIANTS[planted.breaks]]
    found = under(wrong, explore, CLUSTERS[planted.cluster], checks, states_max=2_000)
    assert found.verdict is Verdict.VIOLATED
    assert found.finding is not None
    assert found.finding.invariant == planted.breaks


@pytest.mark.parametrize(
    ("cluster", "invariant"), sorted({(planted.cluster, planted.breaks) for planted in PLANTED})
)
def test_without_the_mistake_it_holds(cluster: str, invariant: str) -> None:
    assert explore(CLUSTERS[cluster], invariants=[INVARIANTS[invariant]]).finding is None
