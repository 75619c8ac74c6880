"""Prompts that mix token ids and embeddings, on connectors of each kind."""

from typing import Any

import msgspec
import pytest

from kvproof.cli.connector import _like
from kvproof.gate.difference.record import Record
from kvproof.gate.difference.workload import Plays
from kvproof.gate.side.plans import driven
from kvproof.live import adapt
from kvproof.live.connectors.drawn import HYBRID, draw_plans
from kvproof.live.connectors.episode import RefusedPlan, play
from kvproof.live.connectors.shipped import SHIPPED
from kvproof.model.plans.connector import (
    ConnectorPlan,
    Drain,
    ResetCache,
    Rows,
    SubmitRequest,
)
from tests.connectors.played import engine_of, played, rules
from tests.cover import others_nightly

pytestmark = pytest.mark.skipif(
    not adapt.mixes_embeddings(), reason="a prompt of this vLLM mixes nothing"
)

NAMES = "offloading-roomy", "mooncake-store", "nixl-pull"
READS, LOADED = "request_reads_its_own_tokens", "promised_tokens_are_loaded"
USED, UNUSED = Rows(0, 8), Rows(0, 8, used=False)


def test_a_vllm_without_such_prompts_leaves_these_plans_out_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adapt, "mixes_embeddings", lambda: False)
    plans = [ConnectorPlan(engine_of(), two(rows, rows)) for rows in (USED, None)]
    with pytest.raises(RefusedPlan, match="token ids or embeddings, and not both"):
        play(SHIPPED[NAMES[0]].subject, plans[0])
    drawn = tuple(map(msgspec.to_builtins, plans))
    left, played = driven(Plays("plans", NAMES[0], plans=drawn)).records
    assert left == Record() != played


def two(first: Rows | None, second: Rows | None, *between: Any, family: int = 0) -> Any:
    """Two requests, one after the other, that differ in their embeddings, or in their prompt."""
    one, other = SubmitRequest(0, 14, 2, rows=first), SubmitRequest(family, 14, 2, rows=second)
    return one, Drain(), *between, other, Drain()


@pytest.mark.parametrize("name", NAMES)
def test_equal_embeddings_are_offered_and_others_are_not(name: str) -> None:
    result = played(name, *two(USED, USED, ResetCache()))
    assert result.findings == ()
    assert result.judged["promised tokens"]
    for other in (None, Rows(4, 4)):
        assert played(name, *two(USED, other)).findings == ()
    assert played(name, *two(USED, USED, family=3)).findings == ()


@pytest.mark.parametrize(("between", "rule"), [((), READS), ((ResetCache(),), LOADED)])
def test_which_embeddings_are_used_is_told_apart_or_known(between: Any, rule: str) -> None:
    """vllm#56655."""
    actions = two(USED, UNUSED, *between)
    name = "offloading-roomy"
    assert rule in rules(played(name, *actions))
    like = _like(SHIPPED[name].subject, ConnectorPlan(engine_of(), actions))
    assert [(like[rule].name, like[rule].at_work)] == [("mask_is_in_no_key", True)]


def test_embeddings_that_are_in_no_key_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    actions = two(Rows(8, 4), Rows(8, 4), family=1)  # other embeddings behind equal tokens
    assert played(NAMES[0], *actions).findings == ()
    place = "vllm.v1.core.kv_cache_utils._gen_prompt_embeds_extra_hash_keys"
    monkeypatch.setattr(place, lambda *_: [])
    assert rules(played(NAMES[0], *actions)) == {READS}


FEATURES: dict[str, Any] = {
    "a salt": lambda each: each.beside == "salt",
    "an adapter": lambda each: each.beside == "lora",
    "prompt log-probabilities": lambda each: each.computes_all,
    "a later turn": lambda each: each.answer > 0,
    "an image": lambda each: bool(each.whole),
    "embeddings": lambda each: each.rows is not None,
}

NOT_DRAWN = {
    **{name: {"embeddings"} for name in ("images", "images-stored", "images-encoded")},
    "hidden-states": {"embeddings", "an image"},
}
"""vLLM mixes no images and embeddings, and its connector of hidden states saves token ids."""


@pytest.mark.parametrize("name", others_nightly(SHIPPED, [*NAMES, "images"]))
def test_each_connector_is_drawn_with_each_feature_of_a_request(name: str) -> None:
    drawn: set[str] = set()

    def take(plan: ConnectorPlan) -> None:
        requests = [each for each in plan.actions if isinstance(each, SubmitRequest)]
        drawn.update(what for what, has in FEATURES.items() if any(map(has, requests)))

    draw_plans(SHIPPED[name].subject, HYBRID[:1], 200, 0, take)
    assert drawn == FEATURES.keys() - NOT_DRAWN.get(name, set())
