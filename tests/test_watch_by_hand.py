"""A test may build a state that no event leads to: its engine is not judged any further."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest import mock

import pytest

from kvproof.model.errors import AdapterDrift
from kvproof.model.events import Schedule, Submit
from kvproof.model.presets import CLUSTERS

pytestmark = pytest.mark.live


def marked_as_running(scheduler: Any) -> None:
    scheduler.running.append(scheduler.waiting.pop_request())


def with_computed_tokens(scheduler: Any) -> None:
    for request in scheduler.requests.values():
        request.num_computed_tokens = 4


def without_a_free_block(scheduler: Any) -> None:
    scheduler.kv_cache_manager.block_pool.free_block_queue.popleft()


def with_another_method(scheduler: Any) -> None:
    manager = scheduler.kv_cache_manager
    manager.allocate_slots = mock.Mock(return_value=None)


def with_a_method_called(scheduler: Any) -> None:
    scheduler.kv_cache_manager.block_pool.get_new_blocks(1)


def with_an_exception(scheduler: Any) -> None:
    failing = mock.Mock(side_effect=ZeroDivisionError)
    with (
        mock.patch.object(scheduler.kv_cache_manager, "new_step_starts", failing),
        pytest.raises(ZeroDivisionError),
    ):
        scheduler.schedule()


BY_HAND = {
    marked_as_running: "the running requests changed between two events",
    with_computed_tokens: "the num_computed_tokens of a request changed between two events",
    without_a_free_block: "the number of free blocks changed between two events",
    with_another_method: "allocate_slots was replaced",
    with_a_method_called: "get_new_blocks was called outside of an event",
    with_an_exception: "schedule raised ZeroDivisionError",
}


def watched(build: Callable[[Any], None], *, tested: bool) -> tuple[Any, list[str]]:
    """An engine to which something is done between two events. Returns its judge and findings."""
    from kvproof.live.machine import LiveMachine
    from kvproof.watch.judge import Judge
    from kvproof.watch.observer import Observer

    machine = LiveMachine(CLUSTERS["full"])
    found: list[str] = []
    judge = Judge(lambda finding, _: found.append(finding.invariant))
    scheduler = machine.nodes["E"].scheduler
    Observer(scheduler, judge, tested=tested)
    machine.take(Submit("E", "r0"))
    build(scheduler)
    with suppress(AdapterDrift):  # the driver cannot follow each of these states
        machine.take(Schedule("E"))
    return judge, found


@pytest.mark.parametrize("build", BY_HAND, ids=lambda build: build.__name__)
def test_a_state_that_is_built_by_hand_is_not_judged(build: Callable[[Any], None]) -> None:
    judge, found = watched(build, tested=True)
    assert judge.by_hand == BY_HAND[build]
    assert not judge.why_off
    assert not found
    assert not judge.times_judged["pool_adds_up"]


def test_what_only_events_have_changed_is_judged() -> None:
    judge, _ = watched(lambda _: None, tested=True)
    assert not judge.by_hand
    assert judge.times_judged["pool_adds_up"]


def test_an_exception_in_a_server_is_a_finding() -> None:
    judge, found = watched(with_an_exception, tested=False)
    assert found == ["engine_survives"]
    assert judge.by_hand == "schedule raised ZeroDivisionError"
