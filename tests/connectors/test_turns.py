"""A conversation goes on: the next prompt has the answer in it, and loads what of it was stored."""

from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    OffloadingConnectorScheduler,
)

from kvproof.connectors.episode import EpisodeResult, play
from kvproof.connectors.plan import (
    STORE_ANSWERS,
    ConnectorPlan,
    Drain,
    Options,
    ResetCache,
    SubmitRequest,
)
from kvproof.connectors.shipped import SHIPPED
from kvproof.model.config import EngineConfig, Group

pytestmark = pytest.mark.live

OFFLOADED, SAVED = ((option,) for option in STORE_ANSWERS)
STORES = [("offloading-roomy", OFFLOADED), ("mooncake-store", SAVED), ("simple-cpu-roomy", ())]


def conversation(name: str, options: Options, answered: int) -> EpisodeResult:
    """A prompt of 14 tokens, its answer, and a prompt of both and four tokens more."""
    engine = EngineConfig("E", (Group("full", 4),), num_blocks=24, chunk_tokens=64)
    later = SubmitRequest(0, 14 + answered + 4, turn=14, answer=answered)
    turns = (SubmitRequest(0, 14, answered), Drain(), ResetCache(), later, Drain())
    return play(SHIPPED[name].subject, ConnectorPlan(engine, turns, options=options))


def test_a_later_turn_has_the_answer_in_it() -> None:
    assert SubmitRequest(0, 8, turn=3, answer=2).prompt == "abc..fgh"
    assert SubmitRequest(0, 4, turn=3, answer=2).prompt == "abc."


@pytest.mark.parametrize(("name", "options"), STORES)
@pytest.mark.parametrize(("answered", "blocks"), [(2, 3), (3, 4), (6, 4), (7, 5)])
def test_the_computed_tokens_of_an_answer_are_loaded(
    name: str, options: Options, answered: int, blocks: int
) -> None:
    """The last token of an answer is not computed."""
    result = conversation(name, options, answered)
    assert result.findings == ()
    assert result.judged["promised tokens"] == 2 * 4 * blocks
    assert result.judged["prompts that came again"] == 1


def test_the_last_token_of_an_answer_that_is_stored_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """vllm#54288."""
    original: Any = OffloadingConnectorScheduler._calc_num_offloadable_tokens

    def one_more(self: Any, status: Any, computed: int) -> int:
        return int(original(self, status, computed + status.req.is_finished()))

    monkeypatch.setattr(OffloadingConnectorScheduler, "_calc_num_offloadable_tokens", one_more)
    found = conversation("offloading-roomy", OFFLOADED, 2).findings
    assert found[0].invariant == "promised_tokens_are_loaded"


def test_an_answer_that_is_not_stored_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connector does not do what its option says."""
    original: Any = OffloadingConnectorScheduler._calc_num_offloadable_tokens

    def prompt_only(self: Any, status: Any, computed: int) -> int:
        return min(int(original(self, status, computed)), status.req.num_prompt_tokens)

    monkeypatch.setattr(OffloadingConnectorScheduler, "_calc_num_offloadable_tokens", prompt_only)
    found = conversation("offloading-roomy", OFFLOADED, 7).findings
    assert found[0].invariant == "stored_prefix_is_offered"
