"""Lost performance in the connectors that vLLM ships: a block that is not stored, or not found."""

from itertools import chain

import pytest

from kvproof.gate.difference.workload import Plays
from kvproof.gate.side import plans as side_plans
from kvproof.live.connectors.episode import play
from kvproof.live.connectors.shipped import SHIPPED
from kvproof.model.config import EngineConfig, Group
from kvproof.model.plans.connector import (
    ConnectorPlan,
    Copies,
    Drain,
    Forget,
    ResetCache,
    SubmitRequest,
)
from tests.connectors.test_mistakes_of_vllm import PLANTED

RULE = "stored_prefix_is_offered"
PLANS = 60


ENGINE = EngineConfig("E", (Group("full", 4),), num_blocks=24, chunk_tokens=64)
AGAIN = (SubmitRequest(0, 14), Drain(), ResetCache(), SubmitRequest(0, 14), Drain())


@pytest.mark.parametrize(("planted", "seeds"), [(False, 1), (True, 5)])
def test_random_plans_of_the_gate_show_a_block_that_is_not_stored_and_no_other(
    planted: bool, seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 60 plans, one seed in eight to one in four does not show it."""
    if planted:
        PLANTED["a block is not stored"].plant(monkeypatch)
    drawn = (Plays("plans", "offloading-roomy", seed, PLANS) for seed in range(seeds))
    breaks = chain.from_iterable(side_plans.driven(each).breaks for each in drawn)
    assert any(each.signature.check == RULE for each in breaks) is planted


@pytest.mark.parametrize(
    ("plan", "asked", "excused"),
    [
        (ConnectorPlan(ENGINE, AGAIN), 1, 0),
        (ConnectorPlan(ENGINE, (SubmitRequest(0, 14), SubmitRequest(0, 14), Drain())), 0, 0),
        (ConnectorPlan(ENGINE, (*AGAIN[:2], ResetCache(connector=True), *AGAIN[3:])), 0, 1),
        (ConnectorPlan(ENGINE, (*AGAIN[:2], Forget(), *AGAIN[2:])), 0, 1),
        (ConnectorPlan(ENGINE, (*AGAIN[:2], Forget(part=True), *AGAIN[2:])), 0, 1),
    ],
    ids=["kept", "not yet stored", "reset", "forgotten", "forgotten in part"],
)
def test_a_prompt_is_expected_that_ended_and_was_not_forgotten(
    plan: ConnectorPlan, asked: int, excused: int
) -> None:
    result = play(SHIPPED["mooncake-store"].subject, plan)
    assert result.findings == ()
    assert (result.times_judged[RULE], result.excused[RULE]) == (asked, excused)


def test_a_second_load_of_a_request_in_one_action_is_a_load_of_its_own() -> None:
    # r4 loads, loses its blocks to r3, and loads again, all within the last action.
    engine = EngineConfig(
        "E", (Group("full", 8),), num_blocks=7, chunk_tokens=64, steps_in_flight=2
    )
    first, second = SubmitRequest(0, 24, 6), SubmitRequest(1, 24, 6)
    loses = (Drain(), ResetCache())
    plan = ConnectorPlan(
        engine,
        (first, *loses, first, second, *loses, second, first),
        copies=Copies(late=True, steps=1),
        ranks=2,
    )
    result = play(SHIPPED["simple-cpu-roomy"].subject, plan)
    assert result.findings == ()
    assert result.judged["loads"] == 5


@pytest.mark.parametrize("name", ["offloading-roomy", "simple-cpu-roomy"])
def test_a_hit_ends_where_the_blocks_of_each_group_do(name: str) -> None:
    """The drafter takes a narrow block from the hit: what is left of a wide one is no hit."""
    groups = (
        Group("full", 8),
        Group("window", 8, window=8),
        Group("window", 2, window=4, eagle=True),
    )
    engine = EngineConfig("E", groups, num_blocks=40, chunk_tokens=64, drafts=2)
    prompt = SubmitRequest(0, 17, 1)
    result = play(SHIPPED[name].subject, ConnectorPlan(engine, (prompt, Drain(), prompt)))
    assert result.findings == ()
    assert result.judged["prompts that came again"]
