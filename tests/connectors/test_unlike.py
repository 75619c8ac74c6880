"""P and D that do not fit: the connector is to see that before anything is loaded."""

from dataclasses import replace

import pytest

pytest.importorskip("vllm")

from kvproof.connectors.episode import play
from kvproof.connectors.plan import ConnectorPlan, SubmitRequest, Unlike, lines
from kvproof.connectors.shipped import SHIPPED, UNLIKE
from kvproof.model.config import EngineConfig, Group

pytestmark = pytest.mark.live

ENGINE = EngineConfig("E", (Group("full", 4),), 64, chunk_tokens=64)


def planned(unlike: Unlike) -> ConnectorPlan:
    return ConnectorPlan(ENGINE, (SubmitRequest(0, 14, 2),), unlike=unlike)


@pytest.mark.parametrize("unlike", UNLIKE)
@pytest.mark.parametrize("name", ["nixl-pull", "nixl-push"])
def test_no_load_succeeds_and_every_request_is_answered(name: str, unlike: Unlike) -> None:
    assert ", P with another " in lines(planned(unlike))[0]
    found = play(SHIPPED[name].subject, planned(unlike))
    assert not found.findings
    assert found.judged["failures"]
    assert not found.judged["promised tokens"]


@pytest.mark.parametrize("unlike", ["model", "dtype"])
@pytest.mark.parametrize("name", ["nixl-pull", "nixl-push"])
def test_where_nobody_looks_wrong_tokens_are_found(name: str, unlike: Unlike) -> None:
    """vLLM can be told not to look."""
    subject = SHIPPED[name].subject
    trusting = replace(subject, extra={**subject.extra, "enforce_handshake_compat": False})
    found = play(trusting, planned(unlike))
    assert found.findings[0].invariant == "promised_tokens_are_loaded"
    assert not play(trusting, planned("")).findings
