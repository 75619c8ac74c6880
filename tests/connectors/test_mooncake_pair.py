"""P and D with Mooncake's transfer engine between them: vLLM's own workers, loops and servers."""

from typing import Any

import pytest

from kvproof.live.connectors.episode import EpisodeResult
from kvproof.live.connectors.shipped import SHIPPED
from kvproof.live.fakes.clock import Clock
from kvproof.live.fakes.mooncake import NOT_WRITTEN, TransferEngine
from kvproof.live.fakes.replaced import device
from kvproof.model.plans.connector import (
    AbortRequest,
    Copies,
    Drain,
    Fail,
    ResetCache,
    Restart,
    RunSteps,
    SubmitRequest,
)
from tests.connectors import played as episodes
from tests.connectors.played import EARLY, LATE, PROMPTS, between_ranks, rules

WHEN = pytest.mark.parametrize("copies", [EARLY, LATE], ids=["early", "late"])


def played(*actions: Any, copies: Copies = EARLY, **more: Any) -> EpisodeResult:
    """An episode that begins with two prompts."""
    return episodes.played("mooncake", *PROMPTS, *actions, copies=copies, **more)


def grave(result: EpisodeResult) -> set[str]:
    """The rules that are broken, without the statistics, which vLLM counts at each attempt."""
    return rules(result) - {"statistics_count_once"}


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
    result = played(Drain(), ResetCache(), *PROMPTS, **between_ranks(*ranks))
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
    actions = (*batch, Restart(), *LOST, *LOST, *LOST)
    found = episodes.played("mooncake", *actions, copies=copies)
    assert "reports_are_of_known_transfers" in rules(found)
    assert "assert req_id in self.requests" in found.findings[-1].sentence


def test_memory_that_is_not_registered_is_not_written() -> None:
    clock = Clock(EARLY)
    with device(clock):
        one, other = TransferEngine(clock), TransferEngine(clock)
        one.batch_register_memory([100], [8])
        session = f"host:{other.get_rpc_port()}"
        assert one.batch_transfer_sync_write(session, [100], [200], [8]) == NOT_WRITTEN
