"""P and D with Mooncake's transfer engine between them: vLLM's own workers, loops and servers."""

from typing import Any

import pytest
from msgspec.structs import replace

pytest.importorskip("vllm")

from vllm.distributed.kv_transfer.kv_connector.v1.mooncake import mooncake_connector as home

from kvproof.connectors.device.clock import Clock
from kvproof.connectors.device.mooncake import FAILED, TransferEngine
from kvproof.connectors.device.replaced import device
from kvproof.connectors.episode import EpisodeResult, play
from kvproof.connectors.plan import (
    AbortRequest,
    ConnectorPlan,
    Copies,
    Drain,
    Fail,
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
EARLY, LATE = Copies(), Copies(late=True, steps=2)
WHEN = pytest.mark.parametrize("copies", [EARLY, LATE], ids=["early", "late"])


def played(*actions: Any, copies: Copies = EARLY, **more: Any) -> EpisodeResult:
    plan = replace(ConnectorPlan(ENGINE, (*PROMPTS, *actions), copies=copies), **more)
    return play(SHIPPED["mooncake"].subject, plan)


def grave(result: EpisodeResult) -> set[str]:
    """The rules that are broken, without the statistics, which vLLM counts at each attempt."""
    return {finding.invariant for finding in result.findings} - {"statistics_count_once"}


@WHEN
def test_d_gets_what_p_computed_and_p_gives_its_blocks_back(copies: Copies) -> None:
    result = played(Drain(), ResetCache(), *PROMPTS, copies=copies)
    assert not grave(result)
    assert result.judged["loads"] == result.judged["kept requests"] == 4
    assert result.judged["promised tokens"] == 2 * 2 * (14 + 10)


@WHEN
@pytest.mark.parametrize("steps", range(7))
@pytest.mark.parametrize("which", range(4))
def test_a_client_may_go_away_in_each_phase(steps: int, which: int, copies: Copies) -> None:
    assert not grave(played(RunSteps(steps + 1), AbortRequest(which), copies=copies))


@pytest.mark.parametrize("ranks", SHIPPED["mooncake"].subject.unequal)
def test_p_and_d_may_have_other_numbers_of_ranks(ranks: tuple[int, int]) -> None:
    spread = {"prefill_ranks": ranks[0], "ranks": ranks[1], "tensor": True}
    result = played(Drain(), ResetCache(), *PROMPTS, **spread)
    assert not grave(result)
    assert result.judged["promised tokens"] == 2 * 2 * (14 + 10) * ranks[1]


@pytest.mark.parametrize("before", [(), (SubmitRequest(1, 9),)], ids=["P", "D"])
def test_either_may_be_started_again(before: tuple[Any, ...]) -> None:
    result = played(*before, Restart(), *PROMPTS)
    assert not grave(result)
    assert result.judged["engines that were started again"] == 1


def test_a_write_that_fails_ends_a_load_and_no_more() -> None:
    result = played(Fail(times=1, raises=False), RunSteps(9), *PROMPTS)
    assert not grave(result)
    assert result.judged["failures"] == 1


LOST = SubmitRequest(1, 9, 1), AbortRequest(0), Drain()
"""A load that ends when D has waited long enough: P gives the request up."""


@WHEN
def test_a_request_that_was_loaded_fails_with_its_batch(copies: Copies) -> None:
    """In 0.32.0, mended in 0.33.0. P answers for one request of
    a batch, and is gone before the other one is ready. When D has waited long enough, the worker
    reports both."""
    whole = SubmitRequest(1, 7, 1, computes_all=True)
    batch = SubmitRequest(0, 6, 1), whole, AbortRequest(1), Drain()
    plan = ConnectorPlan(ENGINE, (*batch, Restart(), *LOST, *LOST, *LOST), copies=copies)
    found = play(SHIPPED["mooncake"].subject, plan).findings
    assert "reports_are_of_known_transfers" in {each.invariant for each in found}
    assert "assert req_id in self.requests" in found[-1].sentence


def test_blocks_in_another_order_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    grouped: Any = home.group_concurrent_contiguous
    monkeypatch.setattr(
        home, "group_concurrent_contiguous", lambda ours, theirs: grouped(ours, theirs[::-1])
    )
    assert "promised_tokens_are_loaded" in grave(played())


def test_the_heads_of_another_rank_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: Any = home._compute_sender_transfer_plan

    def first_of_all(**named: Any) -> Any:
        sends, _, _, size = planned(**named)
        return sends, 0, 0, size

    monkeypatch.setattr(home, "_compute_sender_transfer_plan", first_of_all)
    assert "promised_tokens_are_loaded" in grave(played(prefill_ranks=1, ranks=2, tensor=True))


def test_an_answer_that_d_does_not_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = home.MooncakeConnectorWorker
    monkeypatch.setattr(kind, "process_pulling_result", lambda *_: None)
    assert grave(played()) == {"every_request_ends"}


def test_blocks_that_p_keeps_for_ever_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(_worker: Any) -> set[str]:
        return set()

    monkeypatch.setattr(home.MooncakeConnectorWorker, "fetch_finished_sending_reqs", none)
    assert grave(played()) == {"kept_blocks_are_given_back"}


def test_memory_that_is_not_registered_is_not_written() -> None:
    clock = Clock(EARLY)
    with device(clock):
        one, other = TransferEngine(clock), TransferEngine(clock)
        one.batch_register_memory([100], [8])
        session = f"host:{other.get_rpc_port()}"
        assert one.batch_transfer_sync_write(session, [100], [200], [8]) == FAILED
