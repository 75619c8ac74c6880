"""The explorer finds every fault: each invariant that a fault is said to break it breaks, with that
invariant alone asked (what the fault lists in `breaks`),
and the shortest trace is as long as `testdata/shortest_runs.json` says."""

import pytest

from kvproof.invariants.check import Check
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.faults.registry import FAULTS
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.verdict import Verdict
from kvproof.strategies.witnesses import breaking, witnesses
from tests.planted import SHORTEST, under

pytestmark = pytest.mark.exhaustive


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_breaks_what_it_is_said_to_break_in_each_of_its_presets(fault: str) -> None:
    found = list(witnesses([FAULTS[fault]]))
    assert {each.cluster.name for each in found} == set(FAULTS[fault].clusters)
    assert {each.finding.invariant for each in found} == set(FAULTS[fault].breaks)
    first = [w for w in found if w.cluster.name == FAULTS[fault].cluster]
    shortest = min(len(w.events) for w in first if w.finding.invariant in FAULTS[fault].breaks)
    assert shortest == SHORTEST.get(fault, shortest)


ELSEWHERE = [
    # Drafts and overlapping steps: which drafts of the step ahead are right is not known yet.
    ("rejected_drafts_are_computed", "async-drafts", ()),
    ("late_output_takes_placeholder", "async-drafts", ()),
    ("window_freed_in_flight", "async-drafts-window", ()),
    ("state_of_rejected_drafts", "hybrid-async-drafts", ()),
    # P pushes: vllm#48633 trimmed from the front, vllm#58188 never reported a write as sent, and
    # the aborts are those of vllm#32255.
    ("front_trim", "push-full", ("paired_offsets_are_equal", "request_reads_its_own_prefix")),
    ("read_is_not_reported", "push-failing", ("every_request_can_finish",)),
    ("abort_frees_under_load", "push-failing", ("nothing_reused_under_transfer",)),
    ("aborted_load_never_frees", "push-failing", ("references_are_exact",)),
]
"""Other presets that a fault shows in, and what it breaks there; empty for anything."""


@pytest.mark.parametrize(("fault", "preset", "breaks"), ELSEWHERE)
def test_a_mistake_of_one_feature_shows_beside_another(
    fault: str, preset: str, breaks: tuple[str, ...]
) -> None:
    outcome = under([FAULTS[fault]], explore, CLUSTERS[preset])
    assert outcome.verdict is Verdict.VIOLATED
    assert outcome.finding is not None
    assert not breaks or outcome.finding.invariant in breaks


@pytest.mark.parametrize("invariant", INVARIANTS.values(), ids=list(INVARIANTS))
def test_every_invariant_is_broken_by_a_fault(invariant: Check) -> None:
    assert bool(breaking(invariant)) != invariant.ideal


def test_a_loaded_request_that_waits_holds_the_token_it_computes_again() -> None:
    """Two loads are adopted in one step and the budget computes one of them: the other waits with
    all its blocks counted and one token fewer computed."""
    groups = (Group("full", 1), Group("window", 1, window=2))
    p = EngineConfig("P", groups, 10, "prefill", 1)
    d = EngineConfig("D", groups, 10, "decode", 1)
    cluster = Cluster("waiting", (p, d), (Job("r0", "aA"), Job("r1", "ab")))
    assert explore(cluster).verdict is Verdict.EXHAUSTED
