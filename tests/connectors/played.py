"""Episodes of the connectors that vLLM ships."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from kvproof.cli.connector import _drives, _like
from kvproof.gate.connectors.search import Known
from kvproof.live.connectors.episode import EpisodeResult, play
from kvproof.live.connectors.shipped import SHIPPED
from kvproof.live.connectors.subject import TestedConnector
from kvproof.model.config import EngineConfig, Group
from kvproof.model.plans.connector import (
    Action,
    ConnectorPlan,
    Copies,
    Drain,
    ResetCache,
    SubmitRequest,
)
from tests.engine.findings import inside

FULL = (Group("full", 4),)
BESIDE_WINDOW = (Group("full", 4), Group("window", 4, window=8))

PROMPTS = SubmitRequest(0, 14, 3), SubmitRequest(0, 10, 3)
AGAIN = (SubmitRequest(0, 14), Drain(), ResetCache(), SubmitRequest(0, 14))
"""A prompt that is stored, and comes again when the engine has forgotten it."""

PROMPTS_WITH_STATES = (
    *(SubmitRequest(0, 14), SubmitRequest(1, 9, 4, asks=(("include_output_tokens", 1),)), Drain()),
    *(SubmitRequest(0, 16), ResetCache(), Drain()),
)
"""Prompts whose hidden states are saved, one with those of its answer."""

EARLY, LATE = Copies(), Copies(late=True, steps=2)

NIXL = ("nixl-pull", "nixl-push")
"""D reads from P, or P writes to D."""

LOADED = "promised_tokens_are_loaded"


def engine_of(groups: tuple[Group, ...] = FULL, num_blocks: int = 24, **more: Any) -> EngineConfig:
    """An engine whose steps have room for whole prompts, if it is not said otherwise."""
    return EngineConfig("E", groups, num_blocks, **{"chunk_tokens": 64, **more})


def played(
    name: str, *actions: Any, engine: EngineConfig | None = None, **plan: Any
) -> EpisodeResult:
    """An episode of the connector of this name."""
    return play(SHIPPED[name].subject, ConnectorPlan(engine or engine_of(), actions, **plan))


def explained(subject: TestedConnector) -> Known:
    """What a plan breaks because of a finding that is known of vLLM as released."""
    drives = _drives(subject)
    return lambda breaks: {
        check: each.name for check, each in _like(drives, breaks).items() if each.at_work
    }


def saving_states(layers: ConnectorPlan, late: bool = False) -> dict[str, Any]:
    """The plan of an episode in which hidden states are saved, with these cache groups."""
    engine = engine_of(layers.engine.groups, 64, chunk_tokens=5, drafts=1)
    return {"engine": engine, "copies": Copies(late, 1), "hidden": True}


def rules(result: EpisodeResult) -> set[str]:
    """The rules that an episode breaks."""
    return {finding.invariant for finding in result.findings}


def between_ranks(prefill: int, decode: int) -> dict[str, Any]:
    """P on the first number of tensor ranks, and D on the second."""
    return {"prefill_ranks": prefill, "ranks": decode, "tensor": True}


def turns(answered: int) -> tuple[Action, ...]:
    """A prompt of 14 tokens, its answer, and a prompt of both and four tokens more."""
    later = SubmitRequest(0, 14 + answered + 4, turn=14, answer=answered)
    return SubmitRequest(0, 14, answered), Drain(), ResetCache(), later, Drain()


@contextmanager
def mended(findings: Iterable[str]) -> Iterator[None]:
    """vLLM with the diffs of the pages of these findings."""
    for finding in findings:
        inside.patch(None, finding)
    try:
        yield
    finally:
        inside.unpatch(None)
