"""A vLLM that dies while its engines are made: that is a break, and a refusal is none."""

from typing import Any

import pytest

from kvproof.gate.difference.protocol import Drive, RecordRun
from kvproof.gate.difference.workload import Follow
from kvproof.gate.search import requests
from kvproof.model.events import Submit
from kvproof.model.presets import CLUSTERS

pytestmark = pytest.mark.live

RUN = Follow("a run", CLUSTERS["full"], (Submit("E", "r0"),))


def dying(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    from vllm.v1.core.block_pool import BlockPool

    def fails(*_: Any, **__: Any) -> None:
        raise error("no block is left for the null block")

    monkeypatch.setattr(BlockPool, "__init__", fails)


@pytest.mark.parametrize("error", [AssertionError, KeyError, TypeError])
def test_an_engine_that_dies_when_it_is_made_is_a_break(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    assert not requests._driven(Drive(RUN)).breaks
    dying(monkeypatch, error)
    result = requests._driven(Drive(RUN))
    [found] = result.breaks
    assert not result.reason
    assert (found.signature.check, found.death) == ("engine_survives", f"{error.__name__} in fails")
    assert "start" in found.finding.sentence
    assert "no block is left" in found.finding.sentence
    again = requests._driven(Drive(found.run("again")))
    assert [each.key for each in again.breaks] == [found.key]
    assert "cannot be made" in requests._recorded(RecordRun(found, "folder", "stem")).error


@pytest.mark.parametrize("error", [ValueError, NotImplementedError, RuntimeError])
def test_an_engine_that_is_refused_is_none(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    dying(monkeypatch, error)
    result = requests._driven(Drive(RUN))
    assert not result.breaks
    assert "no block is left" in result.reason


def test_a_mistake_outside_of_any_event_is_told_with_its_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any) -> Any:
        raise KeyError("x")

    monkeypatch.setattr(requests, "result_of", fails)
    reason = requests._driven(Drive(RUN)).reason
    first, *lines = reason.splitlines()
    assert first == "vLLM fails outside of any event (KeyError: 'x')"
    assert lines[-1].endswith('raise KeyError("x")')
