"""What outlives an engine, or lies beside it: engines that are started again over the same store,
replicas on one machine, and what stays open at the end."""

import os
from typing import Any

import pytest
from msgspec.structs import replace
from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.connector import (
    MooncakeStoreConnector,
)
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.file_mapper import FileMapper

from kvproof.live.connectors.episode import play
from kvproof.live.connectors.shipped import FILES, MOONCAKE, OBJECTS, OFFLOADING, SIMPLE
from kvproof.live.connectors.subject import TestedConnector
from kvproof.model.plans.connector import (
    Another,
    ConnectorPlan,
    Drain,
    ResetCache,
    Restart,
    SubmitRequest,
    lines,
)
from tests.connectors.played import engine_of, rules

ENGINE = engine_of(num_blocks=32)
PROMPT = SubmitRequest(0, 14)
WRONG = {"promised_tokens_are_loaded", "request_reads_its_own_tokens"}


def again(another: Another, *more: Another) -> ConnectorPlan:
    """A prompt, and the same one after the engine was started again."""
    restarts = (part for each in (another, *more) for part in (Restart(each), PROMPT))
    return ConnectorPlan(ENGINE, (PROMPT, *restarts))


def all_in_one_folder(patch: pytest.MonkeyPatch, without: str) -> None:
    """Files of any model, or with any type of values, are in one folder."""
    placed: Any = FileMapper._compute_base_path

    def path(root: str, fields: dict[str, Any]) -> Any:
        return placed(root, {**fields, without: ""})

    patch.setattr(FileMapper, "_compute_base_path", staticmethod(path))


@pytest.mark.parametrize("subject", [FILES, OBJECTS, MOONCAKE], ids=lambda each: each.name)
def test_what_was_stored_is_loaded_by_the_next_engine(subject: TestedConnector) -> None:
    found = play(subject, again(""))
    assert not found.findings
    assert found.judged["loads"] == found.judged["engines that were started again"] == 1


@pytest.mark.parametrize("another", ["model", "dtype"])
def test_kv_of_another_engine_is_left_alone(
    another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = again(another)
    found = play(FILES, plan)
    assert not found.findings
    assert not found.judged["loads"]
    assert play(FILES, again(another, another)).judged["loads"] == 1  # that of the first engine
    assert any(line.endswith(("another model", "another dtype")) for line in lines(plan))
    all_in_one_folder(monkeypatch, {"model": "model_name"}.get(another, another))
    assert rules(play(FILES, plan)) & WRONG


@pytest.mark.parametrize("subject", [OFFLOADING, FILES, SIMPLE, MOONCAKE], ids=lambda e: e.name)
def test_replicas_have_a_memory_each(
    subject: TestedConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = [SubmitRequest(family, 14) for family in (0, 1, 2, 3)]
    plan = ConnectorPlan(ENGINE, (*turns, Drain(), ResetCache(), *turns), replicas=True)
    found = play(subject, plan)
    assert not found.findings
    assert found.judged["loads"] >= len(turns)
    if subject is FILES:
        make: Any = SharedOffloadRegion.__init__
        monkeypatch.setattr(
            SharedOffloadRegion,
            "__init__",
            lambda self, engine_id, **more: make(self, engine_id=engine_id[:-1], **more),
        )
        assert rules(play(subject, plan)) & WRONG


def test_replicas_share_an_instance_that_no_other_process_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Files in shared memory have its name: base and head would have the same ones."""
    names, make = set[str](), Scheduler.__init__

    def made(self: Any, vllm_config: Any, *rest: Any, **more: Any) -> None:
        names.add(vllm_config.instance_id)
        make(self, vllm_config, *rest, **more)

    monkeypatch.setattr(Scheduler, "__init__", made)
    play(OFFLOADING, ConnectorPlan(ENGINE, (PROMPT,), replicas=True))
    assert names == {f"kvproof-{os.getpid()}"}


def test_a_client_that_stays_open_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = ConnectorPlan(ENGINE, (PROMPT,))
    assert not play(MOONCAKE, plan).findings
    assert not play(MOONCAKE, replace(plan, stops=True)).findings
    monkeypatch.setattr(MooncakeStoreConnector, "shutdown", lambda _self: None)
    assert rules(play(MOONCAKE, plan)) == {"closed_at_shutdown"}


def test_a_file_in_shared_memory_that_stays_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, left = ConnectorPlan(ENGINE, (PROMPT,)), []
    clean: Any = SharedOffloadRegion.cleanup
    monkeypatch.setattr(SharedOffloadRegion, "cleanup", lambda self: left.append(self))
    assert rules(play(FILES, plan)) == {"closed_at_shutdown"}
    for region in left:
        clean(region)
