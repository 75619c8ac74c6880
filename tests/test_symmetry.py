"""States that differ in names only are one, soundly: and the gate says so when it is not."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from kvproof.invariants.registry import CHECKS
from kvproof.model.config import Cluster, Job
from kvproof.model.errors import UsageError
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import Engine, Request
from kvproof.strategies.count_conformance import conformance_checks
from kvproof.strategies.explorer import checkpoint, symmetry
from kvproof.strategies.explorer.expanded_orbits import ExpandedOrbits
from kvproof.strategies.explorer.explorer import explore, explored
from kvproof.strategies.explorer.packed import PackedSearch
from kvproof.strategies.explorer.running import Checkpoint
from kvproof.strategies.explorer.saved_graph import saved
from kvproof.strategies.explorer.symmetry import first_ids, renamings, with_ids
from kvproof.strategies.verdict import Verdict
from tests.cover import BROKEN, PRESETS, others_nightly
from tests.planted import under
from tests.search_gates import renamed, symmetry_differs, without_ids

pytestmark = pytest.mark.exhaustive

ALL = list(CHECKS.values())
LARGE = (
    *("pd-evicting", "pd-default", "pd-remnant", "pd-recomputing"),
    *("hybrid-evicting", "partial-evicting"),
)
REDUCED = {
    "full": (30, 30),
    "full-evicting": (29, 15),
    "hybrid-evicting": (1074, 1042),
    "hybrid-siblings": (394, 59),
    "three": (25, 14),
    "pd": (267, 134),
    "pd-full": (478, 438),
    "pd-preempting": (439, 320),
    "pd-aborting": (652, 339),
    "pd-recomputing": (698, 693),
    "pd-tight": (213, 78),
    "pd-ratio": (363, 152),
    "pd-ratio-decode": (335, 138),
    "pd-default": (5993, 2472),
}


@pytest.mark.parametrize("name", others_nightly(REDUCED, set(REDUCED) - {"pd-default"}))
def test_distinct_states_without_and_with_symmetry(name: str) -> None:
    plain, reduced = (explore(CLUSTERS[name], symmetric=s) for s in (False, True))
    counts = tuple(o.coverage["states_distinct"] for o in (plain, reduced))
    assert counts == REDUCED[name]
    assert plain.verdict is reduced.verdict is Verdict.EXHAUSTED
    assert set(plain.coverage["goals"]) == set(reduced.coverage["goals"])


@pytest.mark.parametrize("name", others_nightly((n for n in CLUSTERS if n not in LARGE), PRESETS))
def test_symmetry_is_sound(name: str) -> None:
    assert symmetry_differs(CLUSTERS[name], ALL) is None


@pytest.mark.parametrize("name", others_nightly(FAULTS, BROKEN))
def test_a_fault_is_found_by_a_trace_as_short(name: str) -> None:
    fault = FAULTS[name]
    cluster, faults = CLUSTERS[fault.cluster], [fault]
    plain, reduced = (under(faults, explore, cluster, symmetric=s) for s in (False, True))
    assert reduced.finding is not None
    assert len(reduced.events) == len(plain.events)
    machine = ModelMachine(cluster)
    for event in reduced.events:
        under(faults, machine.take, event)


def priority(engine: Engine, request: Request) -> Engine:
    """Requests by name, so that a name decides who is served first."""
    others = [r for r in engine.requests if r.id != request.id]
    return engine._replace(requests=tuple(sorted([*others, request])))


def test_a_machine_in_which_names_matter_turns_the_gate_red(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Engine, "with_request", priority)
    assert "steps differ" in str(symmetry_differs(CLUSTERS["three"], ALL))


def test_forgetting_the_order_of_the_free_queue_turns_the_gate_red(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def careless(engine: Engine, ids: symmetry.Ids) -> Engine:
        named = with_ids(engine, ids)
        return named._replace(free=tuple(sorted(named.free, reverse=True)))

    cluster = replace(CLUSTERS["full-evicting"], evictions=True)
    assert symmetry_differs(cluster, ALL) is None
    monkeypatch.setattr(symmetry, "with_ids", careless)
    assert symmetry_differs(cluster, ALL) is not None


def test_jobs_taken_for_like_that_are_not_turn_the_gate_red(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = CLUSTERS["pd-hitting"]
    blind = replace(cluster, jobs=tuple(replace(j, max_tokens=1) for j in cluster.jobs))
    alike = renamings(blind)
    assert len(renamings(cluster)) == 1 < len(alike)
    monkeypatch.setattr(symmetry, "renamings", lambda _cluster: alike)
    assert symmetry_differs(cluster, ALL) is not None


def test_expanded_it_is_the_plain_graph_up_to_block_ids() -> None:
    cluster = CLUSTERS["pd-tight"]
    search = PackedSearch(cluster, ALL, symmetric=True)
    while not search.over:
        search.expand()
    whole = ExpandedOrbits(search)
    plain = explored(cluster)[1]
    assert set(whole.states) == {without_ids(cluster, state) for state in plain.states}
    ours = {(whole.states[a], whole.states[b], type(e).__name__) for a, b, e in whole.edges}
    names = [without_ids(cluster, state) for state in plain.states]
    assert ours == {(names[a], names[b], type(e).__name__) for a, b, e in plain.edges}
    for number in range(len(whole.states)):
        machine = ModelMachine(cluster)
        for event in whole.trace(number):
            machine.take(event)
        assert without_ids(cluster, machine.state) == whole.states[number]


@pytest.mark.parametrize("after", [1, 30, 77])
def test_resumed_with_symmetry(after: int, tmp_path: Path) -> None:
    cluster, every = CLUSTERS["pd-tight"], [*ALL, *conformance_checks()]
    search = PackedSearch(cluster, every, symmetric=True)
    for _ in range(after):
        search.expand()
    path = tmp_path / "c"
    about = checkpoint.scope(cluster, [i.id for i in every], symmetric=True)
    checkpoint.save(path, about, saved(search.reached))
    resumed = explore(cluster, kept=Checkpoint(path, resume=True), symmetric=True)
    assert resumed.coverage == explore(cluster, symmetric=True).coverage
    with pytest.raises(UsageError, match="of another search"):
        explore(cluster, kept=Checkpoint(path, resume=True))


def test_like_jobs_are_those_whose_prompts_differ_in_the_names_of_tokens() -> None:
    jobs = [Job("a", "xyx"), Job("b", "uvu"), Job("c", "uvv"), Job("d", "uvu", 2)]
    found = renamings(replace(CLUSTERS["pd"], jobs=tuple(jobs)))
    assert [dict(r.jobs) for r in found] == [
        {"a": "a", "b": "b", "c": "c", "d": "d"},
    ]
    found = renamings(replace(CLUSTERS["pd"], jobs=tuple(jobs[:2])))
    assert [dict(r.jobs) for r in found] == [{"a": "a", "b": "b"}, {"a": "b", "b": "a"}]
    assert found[1].after(found[1]) == found[0]
    assert found[1].inverse == found[1]


def test_the_tokens_of_answers_are_exchanged_with_nothing() -> None:
    jobs = (Job("a", "x."), Job("b", "xy"), Job("c", "y."))
    found = renamings(replace(CLUSTERS["pd"], jobs=jobs))
    assert [dict(r.jobs) for r in found] == [{"a": "a", "b": "b", "c": "c"}]


def test_too_many_jobs_are_an_error() -> None:
    jobs = tuple(Job(f"r{n}", "ab") for n in range(6))
    with pytest.raises(UsageError, match="up to 5 jobs"):
        explore(replace(CLUSTERS["pd"], jobs=jobs), symmetric=True)


def test_a_renamed_state_has_its_block_ids_in_the_order_they_are_come_upon() -> None:
    cluster: Cluster = CLUSTERS["pd-default"]
    reached = explored(cluster, symmetric=True)[1]
    swap = renamings(cluster)[1]
    for state in list(reached.states)[::97]:
        assert without_ids(cluster, state) == state
        for engine in state.engines:
            assert first_ids(engine) == tuple(range(len(engine.blocks)))
        assert renamed(renamed(state, swap), swap.inverse) == state
