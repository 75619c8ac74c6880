"""Async scheduling: what steps in flight come to in the model, and what it refuses."""

import pytest
from msgspec.structs import replace

from kvproof.model.config import Cluster
from kvproof.model.errors import UsageError
from kvproof.model.events import Abort, Complete, Schedule, Submit
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import COUNTS, LATE, VOID, Engine, State
from tests.breadth_first import search

OVERLAPPING = [n for n, c in CLUSTERS.items() if any(e.overlaps for e in c.engines)]


def ways(state: State) -> set[str]:
    """What is special about the steps in flight of a state."""
    seen = set()
    for engine in state.engines:
        seen |= {f.fate for step in engine.steps for f in step} - {COUNTS}
        seen |= {"two steps"} if len(engine.steps) > 1 else set()
        seen |= {"blocks wait"} if engine.deferred else set()
        seen |= (
            {"runs ahead"} if any(r.computed > len(r.tokens) for r in engine.requests) else set()
        )
    return seen


def test_the_presets_meet_all_that_can_happen_to_a_step_in_flight() -> None:
    seen = set()
    for name in OVERLAPPING:
        for state in search(CLUSTERS[name], [], 10_000).states:
            seen |= ways(state)
    assert seen == {LATE, VOID, "two steps", "blocks wait", "runs ahead"}


def driven(cluster: Cluster, *events: object) -> tuple[ModelMachine, Engine]:
    machine = ModelMachine(cluster)
    for event in events:
        machine.take(event)  # type: ignore[arg-type]
    return machine, machine.state.engines[0]


def test_what_an_aborted_request_held_waits_for_its_step_beside_a_connector() -> None:
    cluster = CLUSTERS["pd-async"]
    events = Submit("P", "r0"), Schedule("P"), Abort("P", "r0")
    machine, engine = driven(cluster, *events)
    ((steps, blocks),) = engine.deferred
    assert steps == 1
    assert not set(blocks) & set(engine.free)
    assert [f.fate for step in engine.steps for f in step] == [VOID]
    machine.take(Complete("P"))
    assert set(machine.state.engines[0].free) == set(range(1, 7))


def test_more_steps_than_vllm_has_are_refused() -> None:
    engine = CLUSTERS["full"].engines[0]
    with pytest.raises(UsageError, match=r"steps_in_flight of engine E is 3.*Use a whole number"):
        replace(engine, steps_in_flight=3)
