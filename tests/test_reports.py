"""KV events: what a listener makes of them, and how runs of cached blocks are told."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from kvproof.model.kv_events import Cleared, Removed, Stored, replayed
from kvproof.model.presets import CLUSTERS
from kvproof.model.reference.blocks.kv_event_queue import report_spans
from kvproof.model.state import initial


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
