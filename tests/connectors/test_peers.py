"""Two engines with vLLM's tier `p2p` between them: its own sessions and tiers, over memory."""

from typing import Any

import pytest

from kvproof.live.connectors.episode import EpisodeResult
from kvproof.model.plans.connector import (
    PREFILLED,
    ROUTES,
    SOURCE,
    Copies,
    Drain,
    Fail,
    Forget,
    Restart,
    RunSteps,
    SubmitRequest,
    TransferParams,
)
from tests.connectors import played as episodes
from tests.connectors.played import LATE


def asked(family: int, route: TransferParams) -> SubmitRequest:
    return SubmitRequest(family, 14, 2, asks=route)


def played(*actions: Any, copies: Copies = LATE) -> EpisodeResult:
    return episodes.played("offloading-peers", *actions, copies=copies)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("route", sorted(set(ROUTES)))
def test_an_engine_gets_the_prompt_from_the_other(route: TransferParams, late: bool) -> None:
    requests = SubmitRequest(0, 14, 2), Drain(), asked(0, route), Drain()
    result = played(*requests, copies=Copies(late, 2))
    assert result.findings == ()
    assert result.judged["loads"] == 1
    assert result.judged["promised tokens"] == 2 * 12


@pytest.mark.parametrize("does", [Fail(times=2), Forget()])
def test_a_network_that_fails_costs_a_computation(does: Fail | Forget) -> None:
    route = ((PREFILLED, 0),)
    requests = asked(0, route), RunSteps(2), asked(1, route), Drain()
    right, failed = played(*requests), played(*requests[:2], does, *requests[2:])
    assert right.findings == failed.findings == ()
    assert failed.judged["loads"] < right.judged["loads"] == 2


def test_an_engine_may_be_another_one() -> None:
    route = ((SOURCE, 0),)
    first = SubmitRequest(0, 14, 2), Drain(), asked(0, route), Drain()
    again = asked(0, route), RunSteps(), asked(1, route), Drain()
    result = played(*first, Restart(), *again, Restart(), *again)
    assert result.findings == ()
    assert result.judged["engines that were started again"] == 2
