"""Whose fault an exception is: the adapter's, or that of the engine whose call raised it.

The check of the contract is passed by here: what it would have caught comes up while vLLM runs.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kvproof.cli.main import main
from kvproof.live import contract_check as contract
from kvproof.model.errors import AdapterDrift
from kvproof.model.events import Complete, Event, Schedule, Submit, TransferDone
from kvproof.model.presets import CLUSTERS
from tests.driving import taken

pytestmark = pytest.mark.live

OFFERED: tuple[Event, ...] = (
    *(Submit("P", "r0"), Schedule("P"), Complete("P")),
    *(Submit("D", "r0"), Schedule("D")),
)
READ = (*OFFERED, TransferDone("r0"))


@pytest.fixture
def _unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract.Contract, "require", lambda _self, _features: None)


def sampled(preset: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code of a run of real vLLM, and its verdict with the reason."""
    command = ["sample", "--machine", "live", "--config", preset, "--json"]
    code = main([*command, "--examples", "3", "--steps", "25"])
    said = json.loads(capsys.readouterr().out)
    return code, f"{said['verdict']}: {said.get('reason') or said.get('reasons', '')}"


def attributes() -> Iterator[str]:
    """What the stand-in for the push worker is given."""
    from kvproof.live.driver import push

    cluster = CLUSTERS["push-full"]
    made = push.push_worker(cluster.prefill, cluster.decode, push.Agent())
    yield from sorted(vars(made))


@pytest.mark.usefixtures("_unchecked")
def test_a_stand_in_that_lacks_an_attribute_is_no_dead_engine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from kvproof.live.driver import push

    verdicts = {}
    make = push.push_worker
    for name in attributes():

        def lacking(*args: Any, _name: str = name) -> Any:
            made = make(*args)
            if _name in vars(made):
                delattr(made, _name)
            return made

        monkeypatch.setattr(push, "push_worker", lacking)
        verdicts[name] = sampled("push-full", capsys)
    assert len(verdicts) > 40
    for name, (code, said) in verdicts.items():
        assert not said.startswith("VIOLATED"), (name, said)
        if said.startswith("UNKNOWN"):
            assert code == 3
            assert name in said or "stand-in for" in said, said
    unknown = [name for name, (code, _) in verdicts.items() if code == 3]
    assert len(unknown) > len(verdicts) // 2


def driven(events: tuple[Event, ...], preset: str = "pd-full") -> dict[str, str]:
    """Which engine of a cluster is dead after these events, and what of."""
    from kvproof.live.machine import LiveMachine

    machine = taken(LiveMachine(CLUSTERS[preset]), *events)
    return {engine.name: engine.dead.words for engine in machine.state.engines if engine.dead}


@pytest.mark.parametrize("engine", ["P", "D"])
def test_the_engine_has_died_whose_call_raised(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    reported = "finished_sending" if engine == "P" else "finished_recving"
    original = Scheduler._update_from_kv_xfer_finished

    def raising(self: Any, output: Any) -> Any:
        if getattr(output, reported):
            raise RuntimeError("out of luck")
        return original(self, output)

    monkeypatch.setattr(Scheduler, "_update_from_kv_xfer_finished", raising)
    # This file is no part of the adapter, so that what it raises is taken for vLLM's.
    assert driven(READ) == {engine: "RuntimeError in raising: out of luck"}


def test_what_vllm_misses_in_itself_is_its_own_death(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    def broken(_self: Any, *_args: Any, **_more: Any) -> Any:
        return None.num_computed_tokens  # type: ignore[attr-defined]

    monkeypatch.setattr(Scheduler, "_update_from_kv_xfer_finished", broken)
    assert list(driven(READ)) == ["D"]


@pytest.mark.usefixtures("_unchecked")
def test_what_vllm_misses_of_the_contract_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    monkeypatch.delattr(KVCacheManager, "get_block_ids")
    with pytest.raises(AdapterDrift) as raised:
        driven(READ)
    assert raised.value.entry == "KVCacheManager.get_block_ids"
    assert "get_block_ids" in str(raised.value)


def test_an_argument_that_a_stand_in_does_not_take_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """vLLM catches what NIXL raises, and would go on as if the network had failed."""
    from kvproof.live.driver import push

    class Agent(push.Agent):
        def send_notif(self, _agent: str) -> None:  # type: ignore[override]
            raise AssertionError

    monkeypatch.setattr(push, "Agent", Agent)
    with pytest.raises(AdapterDrift, match="unexpected keyword argument 'notif_msg'") as raised:
        driven(OFFERED, "push-full")
    assert raised.value.entry == "Agent.send_notif"
