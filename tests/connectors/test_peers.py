"""Two engines with vLLM's tier `p2p` between them: its own sessions and tiers, over memory."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm.v1.kv_offload.tiering.p2p.control.zmq import ZmqTransport
from vllm.v1.kv_offload.tiering.p2p.data.nixl import NixlTransport
from vllm.v1.kv_offload.tiering.p2p.session.server import ServerRole

from kvproof.connectors.episode import EpisodeResult, play
from kvproof.connectors.plan import (
    PREFILLED,
    ROUTES,
    SOURCE,
    ConnectorPlan,
    Copies,
    Drain,
    Fail,
    Forget,
    Restart,
    RunSteps,
    SubmitRequest,
    TransferParams,
)
from kvproof.connectors.search import search
from kvproof.connectors.shipped import SHIPPED
from kvproof.model.config import EngineConfig, Group

pytestmark = pytest.mark.live

ENGINE = EngineConfig("E", (Group("full", 4),), num_blocks=24, chunk_tokens=64)
PEERS = SHIPPED["offloading-peers"].subject
LATE = Copies(late=True, steps=2)
EPISODES = 60
SEEDS = (2, 4, 5, 0)


def asked(family: int, route: TransferParams) -> SubmitRequest:
    return SubmitRequest(family, 14, 2, asks=route)


def played(*actions: Any, copies: Copies = LATE) -> EpisodeResult:
    return play(PEERS, ConnectorPlan(ENGINE, actions, copies=copies))


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


def copy_elsewhere(patch: pytest.MonkeyPatch) -> None:
    """The blocks of a copy are paired from the wrong end."""
    write: Any = NixlTransport.write_blocks

    def written(self: Any, peer: str, local: list[int], remote: list[int]) -> Any:
        return write(self, peer, local, remote[::-1])

    patch.setattr(NixlTransport, "write_blocks", written)


def lose_questions(patch: pytest.MonkeyPatch) -> None:
    """An engine that is asked what it has does not answer."""
    patch.setattr(ServerRole, "on_lookup", lambda *_, **__: None)


def keep_dead_connections(patch: pytest.MonkeyPatch) -> None:
    """A connection that has ended stands in the way of the next one (vllm#49823)."""
    connect: Any = ZmqTransport.connect

    def connected(self: Any, peer: str) -> Any:
        assert peer not in self._connections
        return connect(self, peer)

    patch.setattr(ZmqTransport, "connect", connected)
    patch.setattr(ZmqTransport, "_sweep_dead_connections", lambda _: None)


MISTAKES: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    copy_elsewhere: "promised_tokens_are_loaded",
    lose_questions: "every_request_ends",
    keep_dead_connections: "engine_survives",
}


@pytest.mark.parametrize("plant", MISTAKES, ids=lambda plant: plant.__name__)
def test_a_planted_mistake_is_named(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for start in SEEDS:
        if (found := search(PEERS, EPISODES, start, shrinks=False)).rule:
            break
    assert found.rule == MISTAKES[plant]
