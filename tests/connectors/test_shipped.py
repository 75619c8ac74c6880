"""The connectors that vLLM ships run in the kit: each loads what it stored, with real bytes."""

import copy
import importlib
from typing import Any

import pytest

from kvproof.live.adapt import keeps_every_state
from kvproof.live.connectors import drawn
from kvproof.live.connectors.drawn import SPREAD
from kvproof.live.connectors.episode import play, require_replaced
from kvproof.live.connectors.judging import mixed_up
from kvproof.live.connectors.search import PlanSearch, accepted
from kvproof.live.connectors.shipped import SHIPPED
from kvproof.live.fakes.replaced import STORE
from kvproof.model.config import EngineConfig, Group
from kvproof.model.errors import AdapterDrift
from kvproof.model.plans.connector import (
    ConnectorPlan,
    Copies,
    Drain,
    ResetCache,
    SubmitRequest,
)

ONE = (Group("full", 4),)
HYBRID = (Group("full", 4), Group("window", 4, window=8))
MAMBA = (Group("full", 4), Group("mamba", 4))

NOT_WHOLE = {"decode-bench", "hidden-states", "images", "images-stored", "images-encoded"}
"""Some load what is wrong on purpose, the others store nothing."""

STORES_LESS = {"lmcache", "multi-lmcache-offloading"}
"""It stores too little of a prompt whose beginning the engine has (`reports/connectors.md`)."""

ONE_GROUP = {
    *("example", "multi-example-offloading"),
    *("lmcache", "lmcache-wide", "multi-lmcache-offloading"),
}
"""They support one cache group."""

SMALL = {"offloading-small"}
"""What two prompts have in two cache groups is more than they can store."""

TWICE = (
    SubmitRequest(0, 14),
    SubmitRequest(1, 14),
    Drain(),
    ResetCache(),
    SubmitRequest(0, 14),
    SubmitRequest(1, 14),
    Drain(),
)

CASES = [
    pytest.param(name, groups, id=f"{name}-{kind}")
    for name in sorted(SHIPPED.keys() - NOT_WHOLE)
    for kind, groups in (("one", ONE), ("window", HYBRID), ("mamba", MAMBA))
    if (groups is ONE or name not in ONE_GROUP | SMALL)
    and SHIPPED[name].subject.takes(groups, False)
]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("name", "groups"), CASES)
def test_a_shipped_connector_loads_what_it_stored(
    name: str, groups: tuple[Group, ...], late: bool
) -> None:
    subject = SHIPPED[name].subject
    engine = EngineConfig("E", groups, num_blocks=24, chunk_tokens=64)
    result = play(subject, ConnectorPlan(engine, TWICE, copies=Copies(late, 1)))
    less = {"stored_prefix_is_offered"} if name in STORES_LESS else set()
    assert {each.invariant for each in result.findings} == less
    assert result.judged["promised tokens"]


def test_these_connectors_and_no_others_support_one_group() -> None:
    alone = {name for name, each in SHIPPED.items() if not each.subject.supports_groups}
    assert alone == ONE_GROUP


def test_no_mode_of_states_is_driven_that_this_vllm_refuses() -> None:
    found = PlanSearch()
    kinds = [each for each in drawn.HYBRID if "mamba" in each.traits]
    made = accepted(SHIPPED["offloading"].subject, found, kinds)
    assert made
    assert any(each.every_state for each in made) == keeps_every_state()
    assert not found.unmade


RANKED = [name for name, each in SHIPPED.items() if each.subject.ranks]
"""They are driven with several ranks too."""

FULL_ON_RANKS = {"simple-cpu", "simple-cpu-lazy"}
"""Their room is for all ranks, and what a prompt has on four of them is more."""


def on_ranks(layers: ConnectorPlan) -> ConnectorPlan:
    engine = EngineConfig("E", layers.engine.groups, num_blocks=24, chunk_tokens=64)
    return ConnectorPlan(engine, TWICE, ranks=layers.ranks, tensor=layers.tensor)


@pytest.mark.parametrize("layers", SPREAD, ids=lambda layers: layers.words)
@pytest.mark.parametrize("name", RANKED)
def test_each_rank_loads_its_part(name: str, layers: ConnectorPlan) -> None:
    result = play(SHIPPED[name].subject, on_ranks(layers))
    assert result.findings == ()
    assert result.judged["promised tokens"] or (layers.tensor and name in FULL_ON_RANKS)


def test_states_of_several_ranks_under_one_key_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # Ranks with the same KV heads share a key, and their states differ (vllm#49499).
    worker = importlib.import_module(STORE).MooncakeStoreWorker
    monkeypatch.setattr(worker, "_spec_tp_replication_factor", lambda *_: 2)
    [layers] = [each for each in SPREAD if each.tensor]
    result = play(SHIPPED["mooncake-store"].subject, on_ranks(layers))
    assert result.findings[0].invariant == "promised_tokens_are_loaded"
    assert "of another rank" in result.findings[0].sentence
    assert mixed_up(result.findings[0]) == "another rank's KV"


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("offloading", "engine_survives"),
        ("offloading-roomy", "engine_survives"),
        ("simple-cpu-roomy", "events_have_tokens_of_their_hash"),
    ],
)
def test_block_sizes_that_leave_out_the_ranks_are_named(
    name: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The connector believes that its blocks are of one rank.
    layers = SPREAD[0]
    kind = SHIPPED[name].subject.kind
    made = kind.__init__

    def alone(self: Any, vllm_config: Any, *more: Any, **named: Any) -> None:
        config = copy.copy(vllm_config)
        config.parallel_config = copy.copy(vllm_config.parallel_config)
        config.parallel_config.decode_context_parallel_size = 1
        made(self, config, *more, **named)

    monkeypatch.setattr(kind, "__init__", alone)
    result = play(SHIPPED[name].subject, on_ranks(layers))
    assert {each.invariant for each in result.findings} == {rule}


@pytest.mark.parametrize(
    ("place", "drift", "fine"),
    [
        ("vllm.v1.kv_offload.tiering.p2p.manager:time", "offloading-peers", "offloading-files"),
        ("vllm.v1.simple_kv_offload.copy_backend:queue", "multi-simple-mooncake", "mooncake-store"),
        ("torch.cuda:Stream", "example", ""),
    ],
)
def test_a_replaced_name_that_is_gone_is_drift(
    place: str, drift: str, fine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only for connectors whose code has it: others are driven."""
    module, _, name = place.partition(":")
    monkeypatch.delattr(f"{module}.{name}")
    with pytest.raises(AdapterDrift, match=f"has no {place}"):
        require_replaced(SHIPPED[drift].subject)
    if fine:
        require_replaced(SHIPPED[fine].subject)
