"""One of P and D has blocks that are half as wide as those of the other one."""

import pytest
from msgspec.structs import replace

from kvproof.live.connectors.drawn import NARROWER
from kvproof.live.connectors.episode import EpisodeResult, play
from kvproof.live.connectors.pair import in_its_blocks
from kvproof.live.connectors.shipped import SHIPPED
from kvproof.model.plans.connector import (
    Action,
    ConnectorPlan,
    Drain,
    ResetCache,
    SubmitRequest,
    lines,
)
from tests.engine.findings import inside

FULL = NARROWER[0]
SUBJECT = SHIPPED["nixl-pull"].subject


def played(layers: ConnectorPlan, *actions: Action) -> EpisodeResult:
    engine = replace(layers.engine, num_blocks=48, chunk_tokens=64)
    return play(SUBJECT, replace(layers, engine=engine, actions=actions))


def prompt(tokens: int) -> SubmitRequest:
    return SubmitRequest(0, tokens, 2)


def test_as_many_tokens_are_in_narrower_blocks() -> None:
    plan = replace(FULL, kernel_blocks=2)
    assert "half as wide on P" in lines(plan)[0]
    narrow = in_its_blocks(plan, "P")
    assert in_its_blocks(plan, "D") is plan
    assert narrow.engine.num_blocks == 2 * plan.engine.num_blocks
    assert narrow.engine.groups[0].block_size == 4
    assert narrow.kernel_blocks == 1


@pytest.mark.parametrize(
    "layers", [e for e in NARROWER if "window" not in e.traits], ids=lambda each: each.kinds
)
def test_whole_prompts_are_loaded(layers: ConnectorPlan) -> None:
    result = played(layers, prompt(22), Drain(), ResetCache(), prompt(24), Drain(), prompt(16))
    assert result.findings == ()
    assert result.judged["promised tokens"]


HIT = prompt(9), Drain(), prompt(18)
"""D has the first block of the second prompt, and half of its last block is behind the prompt."""


def test_padding_that_is_paired_with_tokens_is_found() -> None:
    """The finding of this name, and the same prompts with the patch of its reproducer."""
    assert played(FULL, *HIT).findings[0].invariant == "promised_tokens_are_loaded"
    inside.patch(None, "padding_is_paired_with_tokens", {})
    try:
        assert played(FULL, *HIT).findings == ()
    finally:
        inside.unpatch(None)
