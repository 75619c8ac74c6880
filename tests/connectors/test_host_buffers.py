"""NIXL on a device whose memory it cannot read: KV goes through buffers of the host."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from kvproof.live.connectors.drawn import BUFFERED
from kvproof.live.connectors.episode import EpisodeResult, play
from kvproof.live.connectors.shipped import SHIPPED
from kvproof.model.plans.connector import (
    Action,
    ConnectorPlan,
    Drain,
    ResetCache,
    SubmitRequest,
    lines,
)
from tests.connectors.played import NIXL, rules
from tests.engine.findings import inside

FULL, WINDOW = BUFFERED[0], next(e for e in BUFFERED if "window" in e.traits)
CHUNKED, WHOLE = 5, 64
"""The tokens of a step."""


def played(
    layers: ConnectorPlan, chunk: int, *actions: Action, name: str = "nixl-pull"
) -> EpisodeResult:
    engine = replace(layers.engine, num_blocks=48, chunk_tokens=chunk)
    return play(SHIPPED[name].subject, replace(layers, engine=engine, actions=actions))


def prompt(tokens: int) -> SubmitRequest:
    return SubmitRequest(0, tokens, 2)


@contextmanager
def mended(names: Sequence[str]) -> Iterator[None]:
    """vLLM with the patches of the reproducers of these findings."""
    for name in names:
        inside.patch(None, name, {})
    try:
        yield
    finally:
        inside.unpatch(None)


def test_a_reader_sees_that_there_are_buffers() -> None:
    assert "through buffers of the host" in lines(FULL)[0]
    assert "host buffers" in FULL.traits


@pytest.mark.parametrize("name", NIXL)
@pytest.mark.parametrize("layers", BUFFERED, ids=lambda each: each.words)
def test_what_is_mended_loads_whole_prompts(layers: ConnectorPlan, name: str) -> None:
    actions = prompt(22), Drain(), ResetCache(), prompt(24), Drain(), prompt(16)
    with mended(["rest_of_block_is_not_staged", "staging_overwrites_other_groups"]):
        result = played(layers, CHUNKED, *actions, name=name)
    assert result.findings == ()
    assert result.judged["promised tokens"]


def test_the_rest_of_a_block_is_missed() -> None:
    assert rules(played(FULL, WHOLE, prompt(22))) == set()
    assert "promised_tokens_are_loaded" in rules(played(FULL, CHUNKED, prompt(22)))
    with mended(["rest_of_block_is_not_staged"]):
        assert rules(played(FULL, CHUNKED, prompt(22))) == set()


def test_groups_that_share_a_tensor_are_told_apart() -> None:
    assert "promised_tokens_are_loaded" in rules(played(WINDOW, WHOLE, prompt(3)))
    with mended(["staging_overwrites_other_groups"]):
        assert rules(played(WINDOW, WHOLE, prompt(3))) == set()
