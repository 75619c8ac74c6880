"""Priorities on live vLLM: kept as released, and found out where they are reversed."""

from typing import Any

import pytest

from kvproof.invariants.check import broken
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.events import Admit, Schedule, Submit

pytestmark = pytest.mark.live

JOBS = (Job("r0", "ab", priority=1), Job("r1", "cd"), Job("r2", "ef"))


def first_step(max_requests: int = 256) -> tuple[list[str], list[str]]:
    """Whom live vLLM admits in the first step, in order, and the invariants that breaks."""
    from kvproof.live.machine import LiveMachine

    engine = EngineConfig("E", (Group("full", 2),), policy="priority", max_requests=max_requests)
    machine = LiveMachine(Cluster("c", (engine,), JOBS))
    for job in JOBS:
        machine.take(Submit("E", job.name))
    step = machine.take(Schedule("E"))
    machine.close()
    assert isinstance(step.event, Schedule)
    admitted = [c.request for c in step.event.chose or () if isinstance(c, Admit)]
    found = broken(machine.cluster, step, INVARIANTS.values())
    return admitted, [finding.invariant for finding in found]


def test_the_lowest_number_is_served_first() -> None:
    assert first_step() == (["r1", "r2", "r0"], [])


def test_no_more_run_than_may() -> None:
    assert first_step(max_requests=2) == (["r1", "r2"], [])


def test_the_invariant_finds_a_reversed_order(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.request import Request

    def reversed_order(one: Any, other: Any) -> bool:
        return bool((-one.priority, one.arrival_time) < (-other.priority, other.arrival_time))

    monkeypatch.setattr(Request, "__lt__", reversed_order)
    admitted, found = first_step()
    assert admitted == ["r0", "r1", "r2"]
    assert set(found) == {"priority_is_kept"}
