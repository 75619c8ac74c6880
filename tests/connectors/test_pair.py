"""P and D with NIXL between them: its own workers and its own accounting, over memory."""

from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker import NixlPullConnectorWorker

from kvproof.connectors.device.clock import Clock
from kvproof.connectors.device.nixl import CopyingAgent
from kvproof.connectors.episode import EpisodeResult, play
from kvproof.connectors.plan import (
    AbortRequest,
    ConnectorPlan,
    Copies,
    Drain,
    ResetCache,
    RunSteps,
    SubmitRequest,
)
from kvproof.connectors.shipped import SHIPPED
from kvproof.model.config import EngineConfig, Group

pytestmark = pytest.mark.live

ENGINE = EngineConfig("E", (Group("full", 4),), num_blocks=24, chunk_tokens=64)
PROMPTS = SubmitRequest(0, 14, 3), SubmitRequest(0, 10, 3)


LATE = Copies(late=True, steps=2)


def played(*actions: Any, copies: Copies = LATE) -> EpisodeResult:
    plan = ConnectorPlan(ENGINE, (*PROMPTS, *actions), copies=copies)
    return play(SHIPPED["nixl-pull"].subject, plan)


def test_d_reads_what_p_computed_and_p_gives_its_blocks_back() -> None:
    result = played(Drain(), ResetCache(), *PROMPTS)
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
