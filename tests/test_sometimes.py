"""What presets must meet: together everything, and each of some exactly what it is made for."""

import functools

import pytest

from kvproof.invariants.sometimes import SOMETIMES, reached_goals
from kvproof.model.arithmetic import counts
from kvproof.model.events import EVENTS, Submit
from kvproof.model.presets import CLUSTERS
from kvproof.model.reference.default_rules import REFERENCE
from kvproof.model.reference.rules import Rules
from kvproof.model.step import Step
from kvproof.strategies.explorer.exhaustive import search

pytestmark = pytest.mark.exhaustive

REACHED = {
    "full": {"full_hit", "pool_filled"},
    "full-evicting": {"eviction"},
    "window": {"preemption", "partial_hit", "full_hit", "eviction", "pool_filled"},
    "hybrid-siblings": {"partial_hit", "chunked_prefill", "junction_kept"},
    "state": {"preemption", "pool_filled", "chunked_prefill"},
    "pd-full": {"full_hit", "trimmed_transfer"},
    "pd-embeds": {"chunked_prefill", "truncation"},
    "pd-failing": {"full_hit", "chunked_prefill", "failed_load", "lease_expiry", "truncation"},
    "pd-losing": {"chunked_prefill", "aborted_load", "lease_expiry", "truncation"},
}
"""What happens in a preset, and nothing else does."""


@functools.cache
def goals(name: str, rules: Rules = REFERENCE) -> frozenset[str]:
    """The ids of all that happens in a preset."""
    cluster = CLUSTERS[name]
    found: set[str] = set()

    def note(step: Step) -> None:
        found.update(reached_goals(cluster, step))

    assert not search(cluster, rules, [], 100_000, on_step=note).cut
    return frozenset(found)


@pytest.mark.parametrize("name", REACHED)
def test_what_a_preset_reaches(name: str) -> None:
    assert goals(name) == REACHED[name]


def test_the_presets_together_reach_everything() -> None:
    assert set().union(*map(goals, CLUSTERS)) == set(SOMETIMES)


def untrimmed(_local_first: int, local: int, _remote_first: int, remote: int, *_: bool):
    """The slices of two lists that are paired as they are."""
    return 0, local, 0, remote


@pytest.mark.parametrize(
    ("name", "rule", "function", "lost"),
    [
        ("pd-embeds", "prompt_after_truncation", lambda prompt, *_: prompt, "truncation"),
        ("hybrid-siblings", "shared_prefix_boundary", lambda *_: 0, "junction_kept"),
        ("pd-full", "trim", untrimmed, "trimmed_transfer"),
        ("window", "hit_holds", lambda _: False, "full_hit"),
    ],
)
def test_what_the_rules_no_longer_do_is_missed(name, rule, function, lost) -> None:
    assert lost in goals(name)
    assert lost not in goals(name, REFERENCE.with_rule(rule, function))


def test_every_entry_is_about_an_event_and_says_what() -> None:
    for key, entry in SOMETIMES.items():
        assert entry.id == key
        assert entry.kind in EVENTS.values()
        assert entry.name


def test_goals_of_a_step_come_in_the_order_of_the_registry() -> None:
    order = list(SOMETIMES)
    cluster = CLUSTERS["window"]
    seen: list[list[str]] = []
    search(
        cluster,
        REFERENCE,
        [],
        10_000,
        on_step=lambda step: seen.append([*reached_goals(cluster, step)]),
    )
    assert max(map(len, seen)) > 1
    assert all(ids == sorted(ids, key=order.index) for ids in seen)


def test_a_hit_is_partial_or_full_by_what_leaves_a_token() -> None:
    cluster = CLUSTERS["window"]

    def ask(step: Step) -> None:
        ids = set(reached_goals(cluster, step)) & {"partial_hit", "full_hit"}
        longest = {
            a.hit == counts.longest_hit_tokens(len(a.tokens), 2)
            for a in step.effects.admissions
            if a.hit
        }
        assert ids == {"full_hit" if whole else "partial_hit" for whole in longest}

    search(cluster, REFERENCE, [], 10_000, on_step=ask)


def test_every_step_is_shown_once() -> None:
    events = []
    reached = search(
        CLUSTERS["pd"], REFERENCE, [], 10_000, on_step=lambda step: events.append(step.event)
    )
    assert len(events) == reached.generated == len(reached.edges) + len(reached.self_loops)
    assert any(isinstance(event, Submit) for event in events)
