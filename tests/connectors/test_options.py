"""Settings that a user of a connector may add: half of the plans have some."""

from dataclasses import replace

import msgspec
import pytest
from vllm.v1.simple_kv_offload.disk_backend import DiskBackend

from kvproof.gate.difference.workload import Play
from kvproof.gate.side import plans as side_plans
from kvproof.live.connectors import observed
from kvproof.live.connectors.episode import RefusedPlan, play
from kvproof.live.connectors.search import search
from kvproof.live.connectors.shipped import ON_DISK, SHIPPED
from kvproof.live.connectors.shown import shown
from kvproof.live.connectors.subject import TestedConnector
from kvproof.model.config import EngineConfig, Group
from kvproof.model.errors import AdapterDrift
from kvproof.model.plans.connector import (
    ConnectorPlan,
    Drain,
    Options,
    ResetCache,
    SubmitRequest,
    lines,
)
from tests.connectors.played import explained

ENGINE = EngineConfig("E", (Group("full", 4),), 64, chunk_tokens=64)
TWICE = (SubmitRequest(0, 14, 4), Drain(), ResetCache(), SubmitRequest(0, 14, 4))
WITH_OPTIONS = [(name, o) for name, each in SHIPPED.items() for o in each.subject.options]


def of_each(name: str) -> TestedConnector:
    return SHIPPED[name].subject


@pytest.mark.parametrize(("name", "options"), WITH_OPTIONS)
def test_what_was_stored_is_loaded(name: str, options: Options) -> None:
    plan = ConnectorPlan(ENGINE, (*TWICE, *TWICE), options=options)
    assert all(f"{key} {value}" in lines(plan)[0] for key, value in options)
    found = play(of_each(name), plan)
    assert not found.findings
    assert found.judged["promised tokens"]


def test_options_that_are_refused_are_said() -> None:
    no_path = (("kv_offload_backend", "disk"),)
    plan = ConnectorPlan(ENGINE, TWICE, options=no_path)
    with pytest.raises(RefusedPlan, match="requires disk_path to be set"):
        play(of_each("simple-cpu"), plan)
    only_these = replace(of_each("simple-cpu"), options=(no_path,))
    found = search(only_these, 10, 0, shrinks=False)
    [(why, plans)] = found.unplayed.items()
    assert found.episodes > 0
    [line] = [each for each in shown(only_these, found) if each.startswith("Not played: ")]
    assert line.startswith(f"Not played: {plans} plan")
    assert line.endswith(f". {why}.")
    one = Play("one", "simple-cpu", msgspec.to_builtins(plan))
    with pytest.raises(AdapterDrift, match="options of this plan are refused"):
        side_plans.driven(one)


def test_what_is_missing_without_options_too_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(*_: object) -> None:
        raise AdapterDrift("This vLLM has no x")

    monkeypatch.setattr(observed, "Owners", lacks)
    with pytest.raises(AdapterDrift, match="has no x"):
        play(of_each("simple-cpu"), ConnectorPlan(ENGINE, TWICE, options=ON_DISK))


def test_a_mistake_behind_an_option_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load from a file takes the blocks in the wrong order."""
    load = DiskBackend._do_load

    def wrong(self: DiskBackend, slots: list[int], blocks: list[int], stream: object) -> None:
        load(self, slots[::-1], blocks, stream)

    monkeypatch.setattr(DiskBackend, "_do_load", wrong)
    subject = of_each("simple-cpu")
    found = search(subject, 200, 0, shrinks=False, known=explained(subject))
    assert found.rule == "promised_tokens_are_loaded"
    assert found.plan is not None
    assert found.plan.options == ON_DISK
