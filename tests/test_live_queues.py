"""Queues of live vLLM: each request in one, and found out where one is lost or put in twice."""

from typing import Any

import pytest

from kvproof.invariants.check import broken
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.events import Complete, Event, Schedule, Submit

pytestmark = pytest.mark.live

CLUSTER = Cluster(
    "c", (EngineConfig("E", (Group("full", 2),), 5),), (Job("r0", "abcd", 2), Job("r1", "wxyz", 2))
)
"""Both are admitted, and the second gives way to the first in the next step."""

RUN: tuple[Event, ...] = (
    *(Submit("E", "r0"), Submit("E", "r1")),
    *(Schedule("E"), Complete("E"), Schedule("E"), Complete("E")),
)


def found() -> list[tuple[int, str, str]]:
    """The findings of the run: after which event, the invariant, and the last reason."""
    from kvproof.live.machine import LiveMachine

    machine = LiveMachine(CLUSTER)
    result = []
    for number, event in enumerate(RUN, 1):
        if event not in machine.stimuli():
            break
        step = machine.take(event)
        for finding in broken(machine.cluster, step, INVARIANTS.values()):
            result.append((number, finding.invariant, finding.sentences[-1]))
    machine.close()
    return result


def test_each_request_is_in_one_queue() -> None:
    assert found() == []


def test_a_preempted_request_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler._preempt_request

    def losing(self: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        original(self, request, *args, **kwargs)
        self.waiting.remove_request(request)

    monkeypatch.setattr(Scheduler, "_preempt_request", losing)
    first = found()[0]
    assert first == (5, "every_request_in_one_queue", "it is in no queue, or in several")


def test_a_request_that_is_queued_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler._enqueue_waiting_request

    def twice(self: Any, request: Any) -> None:
        original(self, request)
        original(self, request)

    monkeypatch.setattr(Scheduler, "_enqueue_waiting_request", twice)
    first = found()[0]
    assert first == (1, "every_request_in_one_queue", "it is in no queue, or in several")


def test_a_preempted_request_that_keeps_its_blocks_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    monkeypatch.setattr(Scheduler, "_free_request_blocks", lambda _self, _request: None)
    names = [(number, invariant) for number, invariant, _ in found()]
    assert (5, "every_request_in_one_queue") in names
