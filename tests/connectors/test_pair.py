"""P and D with NIXL between them: its own workers and its own accounting, over memory."""

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

pytest.importorskip("vllm")

from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_worker
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker import NixlPullConnectorWorker
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_worker import NixlPushConnectorWorker

from kvproof.connectors.device.clock import Clock
from kvproof.connectors.device.nixl import CopyingAgent
from kvproof.connectors.episode import EpisodeResult, play
from kvproof.connectors.plan import (
    AbortRequest,
    ConnectorPlan,
    Copies,
    Drain,
    ResetCache,
    Restart,
    RunSteps,
    SubmitRequest,
)
from kvproof.connectors.shipped import SHIPPED
from kvproof.model.config import EngineConfig, Group

pytestmark = pytest.mark.live

ENGINE = EngineConfig("E", (Group("full", 4),), num_blocks=24, chunk_tokens=64)
PROMPTS = SubmitRequest(0, 14, 3), SubmitRequest(0, 10, 3)


LATE = Copies(late=True, steps=2)


def played(
    *actions: Any, copies: Copies = LATE, name: str = "nixl-pull", **more: Any
) -> EpisodeResult:
    plan = replace(ConnectorPlan(ENGINE, (*PROMPTS, *actions), copies=copies), **more)
    return play(SHIPPED[name].subject, plan)


NAMES = ("nixl-pull", "nixl-push")
BOTH = pytest.mark.parametrize("name", NAMES)
"""D reads from P, or P writes to D."""


@BOTH
def test_d_gets_what_p_computed_and_p_gives_its_blocks_back(name: str) -> None:
    result = played(Drain(), ResetCache(), *PROMPTS, name=name)
    assert result.findings == ()
    assert result.judged["loads"] == result.judged["kept requests"] == 4
    assert result.judged["promised tokens"] == 2 * 2 * (14 + 10 - 8 + 8)


@pytest.mark.parametrize("steps", range(1, 7))
def test_a_client_may_go_away_in_each_phase(steps: int) -> None:
    result = played(RunSteps(steps), AbortRequest(0), RunSteps(1), AbortRequest(1))
    assert result.findings == ()


def test_blocks_in_another_order_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    paired: Any = NixlPullConnectorWorker._apply_prefix_caching

    def backwards(*arguments: Any, **named: Any) -> Any:
        ours, theirs = paired(*arguments, **named)
        return ours, [list(reversed(each)) for each in theirs]

    monkeypatch.setattr(NixlPullConnectorWorker, "_apply_prefix_caching", backwards)
    result = played(copies=Copies())
    assert result.findings[0].invariant == "promised_tokens_are_loaded"


def test_a_read_whose_message_is_lost_keeps_the_blocks_until_the_lease_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CopyingAgent, "send_notif", lambda *_: None)
    assert played().findings == ()
    monkeypatch.setattr(Clock, "tick", lambda _: None)  # no lease ends where no time passes
    assert "kept_blocks_are_given_back" in {
        finding.invariant for finding in played(copies=Copies()).findings
    }


@pytest.mark.parametrize(
    ("name", "ranks"),
    [(name, ranks) for name in NAMES for ranks in SHIPPED[name].subject.unequal],
)
def test_p_and_d_may_have_other_numbers_of_ranks(name: str, ranks: tuple[int, int]) -> None:
    spread = {"prefill_ranks": ranks[0], "ranks": ranks[1], "tensor": True}
    result = played(Drain(), ResetCache(), *PROMPTS, name=name, **spread)
    assert result.findings == ()
    slots = 2 * 2 * (14 + 10 - 8 + 8)
    assert result.judged["promised tokens"] == slots * ranks[1]


def test_the_heads_of_another_rank_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    spread = {"prefill_ranks": 1, "ranks": 2, "tensor": True}
    mapping: Any = base_worker.compute_tp_mapping

    def first_of_all(*arguments: Any, **named: Any) -> Any:
        return dataclasses.replace(mapping(*arguments, **named), rank_offset_factor=0)

    monkeypatch.setattr(base_worker, "compute_tp_mapping", first_of_all)
    found = played(copies=Copies(), **spread).findings
    assert found[0].invariant == "promised_tokens_are_loaded"


FURTHER = SubmitRequest(1, 14, 3), SubmitRequest(1, 10, 3)
TIGHT = ConnectorPlan(
    replace(ENGINE, num_blocks=6), (*PROMPTS, *FURTHER), copies=LATE, clock_ahead=100
)
"""P has blocks for two requests that share some, and no others."""


def test_clocks_of_processes_may_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that takes the scheduler's time for its own ends a lease before it has begun."""
    subject = SHIPPED["nixl-pull"].subject
    assert play(subject, TIGHT).findings == ()
    begun: Any = NixlPullConnectorWorker.start_load_kv

    def one_clock(worker: Any, metadata: Any) -> None:
        metadata.scheduler_clock = 0.0
        begun(worker, metadata)

    monkeypatch.setattr(NixlPullConnectorWorker, "start_load_kv", one_clock)
    found = play(subject, TIGHT).findings
    assert found[0].invariant == "promised_tokens_are_loaded"


def test_a_registration_that_p_loses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """P writes nothing, so D waits for ever."""
    monkeypatch.setattr(NixlPushConnectorWorker, "_handle_push_reg_notif", lambda *_: None)
    found = played(copies=Copies(), name="nixl-push").findings
    assert found[0].invariant == "every_request_ends"


def test_blocks_that_p_writes_in_another_order_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    started: Any = NixlPushConnectorWorker._do_start_push_kv

    def backwards(worker: Any, name: str, blocks: Any, registered: Any) -> None:
        started(worker, name, tuple(list(reversed(each)) for each in blocks), registered)

    monkeypatch.setattr(NixlPushConnectorWorker, "_do_start_push_kv", backwards)
    found = played(copies=Copies(), name="nixl-push").findings
    assert found[0].invariant == "promised_tokens_are_loaded"


ONE = SubmitRequest(1, 14, 3)
AGAIN = (Restart(), ONE, Drain(), ResetCache(), *PROMPTS, Restart(), *PROMPTS)
"""P is started again, for it is its turn after two requests, and then D."""


@BOTH
@pytest.mark.parametrize("late", [True, False])
def test_one_that_is_started_again_is_another_engine(name: str, late: bool) -> None:
    result = played(*AGAIN, name=name, copies=Copies(late, 2))
    assert result.findings == ()
    assert result.judged["engines that were started again"] == 2
    assert result.judged["loads"] == 7


def test_an_engine_that_is_taken_for_the_one_before_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D connects to an address once, and takes each later engine there for the first one."""
    asks: Any = NixlPullConnectorWorker._nixl_handshake
    known: dict[Any, Any] = {}

    def once(worker: Any, host: str, port: int, *more: Any) -> Any:
        key = worker.engine_id, port
        if key not in known:
            known[key] = asks(worker, host, port, *more)
        return known[key]

    monkeypatch.setattr(NixlPullConnectorWorker, "_nixl_handshake", once)
    assert played(Drain()).findings == ()
    known.clear()
    assert played(*AGAIN).findings[0].invariant == "engine_survives"


COME_AND_GO = (Restart(), ONE, Drain())
"""P is started again, which takes longer than a connector needs to know it."""


def test_one_that_is_gone_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    for actions, gone in ((COME_AND_GO, 1), (COME_AND_GO[:2], 1), (COME_AND_GO[:1], 0)):
        result = played(*actions)
        assert result.findings == ()
        assert result.judged["engines that were gone for long"] == gone
    for name in ("_evict_stale_engines", "_cleanup_remote_engines"):
        monkeypatch.setattr(base_worker.NixlBaseConnectorWorker, name, lambda _: None)
    found = played(*COME_AND_GO).findings
    assert {each.invariant for each in found} == {"gone_engines_are_forgotten"}


def test_places_for_drafts_that_nobody_has_made_are_rejected() -> None:
    """The last token of a prompt is computed beside places for drafts (vllm#45237), on P too."""
    groups = Group("full", 4), Group("window", 4, window=8)
    engine = EngineConfig("E", groups, num_blocks=64, chunk_tokens=64, drafts=2)
    prompts = SubmitRequest(0, 24, 4), SubmitRequest(0, 21, 4)
    result = played(engine=engine, actions=(prompts[0], RunSteps(3), prompts[1]), accepted=2)
    assert result.findings == ()
    assert result.judged["loads"] == 2
