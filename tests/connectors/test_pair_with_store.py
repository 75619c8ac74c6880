"""P and D, each or P alone with a store beside the connector between them (MultiConnector)."""

from typing import Any

import pytest

pytest.importorskip("vllm")

from kvproof.live.connectors.episode import play
from kvproof.live.connectors.shipped import SHIPPED, as_driven
from kvproof.live.fakes.store_client import FAILED
from kvproof.model.plans.connector import ConnectorPlan, Drain, Fail, ResetCache, Stand, Unlike
from tests.connectors.played import LATE, PROMPTS, engine_of, played, rules
from tests.in_vllm import line

pytestmark = pytest.mark.live

MULTI = "vllm.distributed.kv_transfer.kv_connector.v1.multi_connector:MultiConnector"
NAMES = "NixlConnector", "MooncakeStoreConnector"
BOTH = [{"kv_connector": each, "kv_role": "kv_both"} for each in NAMES]
TWICE = (*PROMPTS, Drain(), ResetCache(), *PROMPTS, Drain())


@pytest.mark.parametrize("unlike", ["", "stores"])
def test_d_loads_from_p_and_stores_take_what_was_computed(unlike: Unlike) -> None:
    result = played("multi-nixl-store", *TWICE, copies=LATE, unlike=unlike)
    assert result.findings == ()
    assert result.judged["kept requests"] >= 4
    assert result.judged["values that a store was sent"] > 0


def test_d_may_be_slow_to_read() -> None:
    slow = (*PROMPTS, Stand("second", 12), Drain(), ResetCache(), *PROMPTS)
    engine = engine_of(num_blocks=9)  # tight for two prompts
    assert not rules(played("multi-nixl-store", *slow, engine=engine, copies=LATE))


def test_settings_with_a_connector_between_engines_drive_two() -> None:
    subject = as_driven("MultiConnector", {"connectors": BOTH}, keeps_prompts=False)
    assert subject.pair
    assert subject.classes == SHIPPED["multi-nixl-store"].subject.classes
    result = play(subject, ConnectorPlan(engine_of(), TWICE, copies=LATE))
    assert result.findings == ()
    assert result.judged["kept requests"] >= 4


def test_settings_of_stores_alone_drive_one() -> None:
    extra: dict[str, Any] = {"connectors": BOTH[1:]}
    assert not as_driven("MultiConnector", extra, keeps_prompts=False).pair


def test_blocks_that_nobody_counts_as_kept_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """P frees the blocks of an ended request, although D has still to read them."""
    place = f"{MULTI}._aggregate_request_finished"
    line(place, "async_saves += 1", "async_saves += 0")(monkeypatch)
    assert rules(played("multi-nixl-store", *TWICE, copies=LATE))


def test_a_store_that_fails_is_no_mistake_of_a_pair() -> None:
    failing = (*PROMPTS, Drain(), ResetCache(), Fail(8, call="get"), *PROMPTS, Drain())
    result = played("multi-nixl-store", *failing, load_failure="recompute")
    assert not rules(result)
    assert any(result.judged[f"{FAILED}{call}"] for call in ("get", "")), result.judged
