"""Clients that go away while a step runs."""

from typing import Any

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from kvproof.model.plans.connector import AbortRequest, RunSteps
from tests.connectors.played import PROMPTS, engine_of, played

OVERLAPS = engine_of(steps_in_flight=2)


def test_two_requests_that_are_aborted_together_end_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """vLLM reads the requests of one call from a set, whose order depends on the seed of hashes."""
    ended: list[Any] = []
    finish = Scheduler.finish_requests

    def noted(self: Any, names: Any, *args: Any, **kwargs: Any) -> Any:
        ended.append(names)
        return finish(self, names, *args, **kwargs)

    monkeypatch.setattr(Scheduler, "finish_requests", noted)
    goes = AbortRequest(1), AbortRequest(0)
    assert not played("simple-cpu", *PROMPTS, RunSteps(), *goes, engine=OVERLAPS).findings
    assert [each for each in ended if each] == [["r1"], ["r0"]]
