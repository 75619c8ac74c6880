"""KV events: what a listener makes of them, and how runs of cached blocks are told."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.events import Complete, ResetPrefixCache, Schedule, Submit
from kvproof.model.faults.registry import FAULTS
from kvproof.model.kv_events import Cleared, Removed, Stored, replayed
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.reference.blocks.kv_event_queue import report_spans
from kvproof.model.state import initial
from kvproof.strategies.explorer.explorer import explore
from tests.planted import under


def test_a_mirror_follows_the_reports() -> None:
    stored = Stored(0, "ab", "cdef", ("abcd", "abcdef"))
    assert replayed((), [stored]) == ((0, "abcd"), (0, "abcdef"))
    assert replayed(((1, "ab"),), [stored, stored, Removed(0, "abcd")]) == (
        (0, "abcdef"),
        (1, "ab"),
    )
    assert replayed(((1, "ab"),), [Removed(0, "ab")]) == ((1, "ab"),)
    assert replayed(((1, "ab"),), [stored, Cleared()]) == ()


@given(st.sets(st.integers(0, 12)), st.integers(0, 13))
def test_runs_name_every_cached_block_once_and_span_no_other(cached: set[int], end: int) -> None:
    inside = tuple(sorted(p for p in cached if p < end))
    spans = report_spans(range(end), inside)
    assert tuple(p for _, named in spans for p in named) == inside
    assert all(tuple(span) == named for span, named in spans)
    assert all(a.stop < b.start for (a, _), (b, _) in itertools.pairwise(spans))


def test_an_engine_without_events_tells_nothing() -> None:
    assert initial(CLUSTERS["full"]).engines[0].reports is None
    assert initial(CLUSTERS["events"]).engines[0].reports == ()


def test_a_step_tells_what_it_caches_and_a_reset_that_nothing_is() -> None:
    machine = ModelMachine(CLUSTERS["events"])
    machine.take(Submit("E", "r0"))
    step = machine.take(Schedule("E"))
    assert step.effects.reports == (Stored(0, "", "abcd", ("ab", "abcd")),)
    assert step.after.engines[0].ghost.mirror == ((0, "ab"), (0, "abcd"))
    assert step.after.engines[0].reports == ()
    machine.take(Complete("E"))
    step = machine.take(ResetPrefixCache("E"))
    assert step.effects.reports == (Cleared(),)
    assert step.after.engines[0].ghost.mirror == ()


def test_no_draft_is_told() -> None:
    """Of two drafts one was right: with the next step its block is full, and told."""
    engine = EngineConfig("E", (Group("full", 1),), 20, drafts=2, kv_events=True)
    machine = ModelMachine(Cluster("c", (engine,), (Job("r0", "a", 6),)))
    for event in (Submit("E", "r0"), Schedule("E"), Complete("E")):
        machine.take(event)
    assert machine.take(Schedule("E")).effects.reports == (Stored(0, "a", ".", ("a.",)),)
    machine.take(Complete("E", {"r0": 1}))
    told = machine.take(Schedule("E")).effects.reports
    assert told == (Stored(0, "a.", "..", ("a..", "a...")),)


def test_on_d_a_copy_that_is_taken_again_is_not_told() -> None:
    outcome = under([FAULTS["removal_of_one_copy_reported"]], explore, CLUSTERS["pd-events"])
    assert outcome.finding is not None
    assert outcome.finding.invariant == "events_replay_to_the_cache"
