"""The traces of the findings: what a report says of them without vLLM."""

import dataclasses

import pytest

from kvproof.invariants.check import broken
from kvproof.invariants.registry import INVARIANTS
from kvproof.live.known.registry import KNOWN, recognised
from kvproof.model.step import Effects, Step
from kvproof.model.traces.restored import restored
from kvproof.model.traces.trace_reader import read
from kvproof.reports.ledger.of_trace import of_trace
from kvproof.reports.terminal import Extra, render
from kvproof.reports.trace.at_fault import at_fault
from tests.findings import FINDINGS, FOLDER


@pytest.mark.parametrize("name", FINDINGS)
def test_a_finding_is_recognised_from_its_trace(name: str) -> None:
    """By the same signature and cause as in a search, or not at all, but as no other one. The
    function at fault is then known."""
    trace = read(FOLDER / name / "trace.jsonl")
    known = recognised(trace)
    shows = trace.machine == "live" and name not in SEEN_IN_EFFECTS
    assert known is (KNOWN[name] if shows else None)
    if known is not None:
        text = " ".join(render(trace, Extra(known=known)).split())
        assert text.count(f"Known finding: {name}: {known.says}") == 2
        (function,) = at_fault((), known)
        assert f"In vLLM, at fault: {function}" in text
        assert of_trace(trace, known=known).at_fault == (function,)
    assert recognised(dataclasses.replace(trace, machine="model")) is None


SEEN_IN_EFFECTS = {
    "copied_before_filled",
    "deeper_state_gives_up_hit",
    "eagle_drop_before_the_last_token",
    "embeddings_not_loaded",
    "fewer_than_none_predicted",
    "full_hit_gives_up_load",
    "report_spans_skipped_blocks",
    "shrunk_hit_is_not_matched_again",
    "window_of_load_not_reserved",
    "superseded_state_reserved",
    "window_prefix_aligned_before_drop",
}
"""Findings whose cause shows only in what a step does, which is not in a trace."""


def test_a_block_of_a_pair_is_named_as_the_tables_name_it() -> None:
    """With kernel blocks, the numbers of a pair are not those of the block tables."""
    trace = read(FOLDER / "end_trim_across_ratios" / "trace.jsonl")
    before, after = list(map(restored, trace.states()))[-2:]
    step = Step(before, trace.events[-1], Effects(), after)
    found = next(broken(trace.cluster, step, [INVARIANTS["paired_offsets_are_equal"]]))
    assert found.sentences[1] == (
        "it is read from kernel block 3 of P (in its block 1), whose tokens start at 2"
    )
