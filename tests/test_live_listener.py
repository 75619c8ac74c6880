"""The listener of a driven engine believes what a subscriber gets, and publishes nothing itself."""

from collections.abc import Callable
from typing import Any

import pytest

from kvproof.model.presets import CLUSTERS
from kvproof.strategies.sampling.stateful import sample
from tests.watching import watched

pytestmark = pytest.mark.live


def lose_the_newest(pool: Any) -> None:
    """An event that waits is gone before it is published."""
    del pool.kv_event_queue[-1:]


def publish_in_another_order(pool: Any) -> None:
    """The events of one step come in reverse order."""
    pool.kv_event_queue.reverse()


@pytest.mark.parametrize("wrong", [lose_the_newest, publish_in_another_order])
def test_what_happens_to_events_that_wait_is_seen(
    wrong: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler.update_from_output

    def mistaken(scheduler: Any, *args: Any) -> Any:
        wrong(scheduler.kv_cache_manager.block_pool)
        return original(scheduler, *args)

    monkeypatch.setattr(Scheduler, "update_from_output", mistaken)
    outcome = sample(CLUSTERS["events"], watched, examples=60, shrink=False)
    assert outcome.finding is not None
    assert outcome.finding.invariant in {"events_replay_to_the_cache", "events_carry_their_tokens"}
