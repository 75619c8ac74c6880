"""Hidden states of prompts that a connector saves to files."""

import os
from pathlib import Path
from typing import Any

import pytest
from vllm.distributed.kv_transfer.kv_connector.v1 import example_hidden_states_connector as home

from kvproof.live.connectors.drawn import HIDDEN
from kvproof.live.connectors.episode import EpisodeResult, play
from kvproof.live.connectors.search import PlanSearch, accepted, search
from kvproof.live.connectors.shipped import STATES, as_driven
from kvproof.live.connectors.shown import shown
from kvproof.model.config import EngineConfig
from kvproof.model.errors import AdapterDrift
from kvproof.model.plans.connector import ConnectorPlan, Copies, Drain, ResetCache, SubmitRequest
from tests.in_vllm import around, instead

RULE = "saved_states_are_of_the_prompt"
LONGER = (("include_output_tokens", 1),)
ACTIONS = (
    SubmitRequest(0, 14),
    SubmitRequest(1, 9, asks=LONGER, max_tokens=4),
    Drain(),
    SubmitRequest(0, 16),
    ResetCache(),
    Drain(),
)


def one(layers: ConnectorPlan, late: bool = False) -> EpisodeResult:
    engine = EngineConfig("E", layers.engine.groups, num_blocks=64, chunk_tokens=5, drafts=1)
    return play(STATES, ConnectorPlan(engine, ACTIONS, copies=Copies(late, 1), hidden=True))


@pytest.mark.nightly
def test_all_cache_groups_are_driven() -> None:
    assert accepted(STATES, PlanSearch()) == list(HIDDEN)
    assert as_driven(STATES.name, {}, keeps_prompts=False) == STATES


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("layers", HIDDEN, ids=lambda each: each.words)
def test_they_are_those_of_the_prompt(layers: ConnectorPlan, late: bool) -> None:
    result = one(layers, late)
    assert not result.findings
    assert result.judged["saved hidden states"] == 14 + 9 + 16


def test_a_connector_that_only_saves_is_judged() -> None:
    found = search(STATES, 5, 0)
    assert not found.nothing_judged
    assert "saved hidden states" in " ".join(shown(STATES, found))


def no_file(_tensors: Any, event: Any, filename: str, lock: int | None) -> None:
    """The file is not written."""
    event.synchronize()
    Path(filename).touch()
    if lock is not None:
        os.close(lock)


HOME = home.__name__
KIND = f"{HOME}:ExampleHiddenStatesConnector"
MISTAKES = {
    "states are read by the block table of the first group (vllm#45849)": instead(
        f"{KIND}._find_cache_kv_group_id", classmethod(lambda *_: 0)
    ),
    "states are read in blocks of another size (vllm#46301)": around(
        f"{HOME}:extract_from_kv_cache",
        lambda right, cache, slots, tokens: right(cache, slots // 2, tokens),
    ),
    "the file is not written": instead(f"{KIND}._write_tensors", staticmethod(no_file)),
}


def test_a_file_of_another_form_is_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    save: Any = home.save_file

    def renamed(tensors: dict[str, Any], filename: str) -> None:
        save({f"new_{name}": each for name, each in tensors.items()}, filename)

    monkeypatch.setattr(home, "save_file", renamed)
    with pytest.raises(AdapterDrift, match="has no hidden_states"):
        one(HIDDEN[0])


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MISTAKES[mistake](monkeypatch)
    assert search(STATES, 30, 0, shrinks=False).rule == RULE
