"""P and D that do not fit: the connector is to see that before anything is loaded."""

import dataclasses

import pytest
from msgspec.structs import replace

from kvproof.live.connectors.episode import play
from kvproof.live.connectors.shipped import SHIPPED, UNLIKE
from kvproof.model.plans.connector import ConnectorPlan, Restart, SubmitRequest, Unlike, lines
from tests.connectors.played import NIXL, engine_of


def planned(unlike: Unlike) -> ConnectorPlan:
    return ConnectorPlan(engine_of(num_blocks=64), (SubmitRequest(0, 14, 2),), unlike=unlike)


@pytest.mark.parametrize("unlike", UNLIKE)
@pytest.mark.parametrize("name", NIXL)
def test_no_load_succeeds_and_every_request_is_answered(name: str, unlike: Unlike) -> None:
    assert ", P with another " in lines(planned(unlike))[0]
    found = play(SHIPPED[name].subject, planned(unlike))
    assert not found.findings
    assert found.judged["failures"]
    assert not found.judged["promised tokens"]


def test_loads_of_an_engine_that_was_replaced_may_have_failed_too() -> None:
    arrivals = [SubmitRequest(0, tokens, 2) for tokens in (4, 14, 9)]
    plan = replace(planned("model"), actions=(*arrivals, Restart()))
    found = play(SHIPPED["nixl-pull"].subject, plan)
    assert not found.findings
    assert found.judged["engines that were started again"] == 1


@pytest.mark.parametrize("unlike", ["model", "dtype"])
@pytest.mark.parametrize("name", NIXL)
def test_where_nobody_looks_wrong_tokens_are_found(name: str, unlike: Unlike) -> None:
    """vLLM can be told not to look."""
    subject = SHIPPED[name].subject
    trusting = dataclasses.replace(
        subject, extra={**subject.extra, "enforce_handshake_compat": False}
    )
    found = play(trusting, planned(unlike))
    assert found.findings[0].invariant == "promised_tokens_are_loaded"
    assert not play(trusting, planned("")).findings
