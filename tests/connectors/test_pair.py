"""P and D with NIXL between them: its own workers and its own accounting, over memory."""

from typing import Any

import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_worker
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker import NixlPullConnectorWorker

from kvproof.live.connectors.episode import EpisodeResult
from kvproof.live.connectors.shipped import SHIPPED
from kvproof.live.fakes.clock import Clock
from kvproof.live.fakes.nixl import CopyingAgent
from kvproof.model.config import Group
from kvproof.model.plans.connector import (
    AbortRequest,
    Copies,
    Drain,
    ResetCache,
    Restart,
    RunSteps,
    SubmitRequest,
)
from tests.connectors import played as episodes
from tests.connectors.played import LATE, NIXL, PROMPTS, between_ranks, engine_of, rules

BOTH = pytest.mark.parametrize("name", NIXL)


def played(
    *actions: Any, copies: Copies = LATE, name: str = "nixl-pull", **more: Any
) -> EpisodeResult:
    """An episode that begins with two prompts."""
    return episodes.played(name, *PROMPTS, *actions, copies=copies, **more)


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


def test_a_read_whose_message_is_lost_keeps_the_blocks_until_the_lease_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CopyingAgent, "send_notif", lambda *_: None)
    assert played().findings == ()
    monkeypatch.setattr(Clock, "tick", lambda _: None)  # no lease ends where no time passes
    assert "kept_blocks_are_given_back" in rules(played(copies=Copies()))


@pytest.mark.parametrize(
    ("name", "ranks"),
    [(name, ranks) for name in NIXL for ranks in SHIPPED[name].subject.unequal],
)
def test_p_and_d_may_have_other_numbers_of_ranks(name: str, ranks: tuple[int, int]) -> None:
    result = played(Drain(), ResetCache(), *PROMPTS, name=name, **between_ranks(*ranks))
    assert result.findings == ()
    slots = 2 * 2 * (14 + 10 - 8 + 8)
    assert result.judged["promised tokens"] == slots * ranks[1]


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
    for actions, excused in (
        (COME_AND_GO, False),
        (COME_AND_GO[:2], False),
        (COME_AND_GO[:1], True),
    ):
        result = played(*actions)
        assert result.findings == ()
        assert result.judged["engines that are gone"] == 1
        assert bool(result.excused["gone_engines_are_forgotten"]) == excused
    for name in ("_evict_stale_engines", "_cleanup_remote_engines"):
        monkeypatch.setattr(base_worker.NixlBaseConnectorWorker, name, lambda _: None)
    assert rules(played(*COME_AND_GO)) == {"gone_engines_are_forgotten"}


def test_places_for_drafts_that_nobody_has_made_are_rejected() -> None:
    """The last token of a prompt is computed beside places for drafts (vllm#45237), on P too."""
    groups = Group("full", 4), Group("window", 4, window=8)
    first, second = SubmitRequest(0, 24, 4), SubmitRequest(0, 21, 4)
    engine = engine_of(groups, 64, drafts=2)
    result = episodes.played(
        "nixl-pull", first, RunSteps(3), second, engine=engine, copies=LATE, accepted=2
    )
    assert result.findings == ()
    assert result.judged["loads"] == 2
