"""The connectors that vLLM ships, in the kit: what the episodes of test_episodes.py do not show."""

import dataclasses
import gc
import os
import sys
from contextlib import suppress
from itertools import chain
from typing import Any

import pytest
import torch
from vllm.distributed.kv_transfer.kv_connector.v1 import example_hidden_states_connector
from vllm.distributed.kv_transfer.kv_connector.v1.example_connector import ExampleConnector
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.distributed.kv_transfer.kv_connector.v1.simple_cpu_offload_connector import (
    SimpleCPUOffloadConnector,
)
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.simple_kv_offload.disk_backend import DiskBackend
from vllm.v1.worker.kv_connector_model_runner_mixin import KVConnectorModelRunnerMixin
from vllm.v1.worker.utils import AttentionGroup

from kvproof.gate.connectors.search import PlanSearch, RuleBroken, search
from kvproof.gate.connectors.shown import shown
from kvproof.gate.difference.record import Record
from kvproof.gate.difference.workload import Play, Plays
from kvproof.gate.side import plans as side_plans
from kvproof.live import adapt
from kvproof.live.connectors import drawn, observed
from kvproof.live.connectors.accepted import accepted
from kvproof.live.connectors.episode import RefusedPlan, play, require_replaced
from kvproof.live.connectors.layouts import layouts
from kvproof.live.connectors.shipped import ON_DISK, SHIPPED, SIMPLE, STATES, as_driven
from kvproof.model.errors import AdapterDrift
from kvproof.model.plans.connector import (
    AbortRequest,
    ConnectorPlan,
    Drain,
    Forget,
    ResetCache,
    Restart,
    Rows,
    RunSteps,
    SubmitRequest,
    lines,
)
from tests.connectors.played import (
    AGAIN,
    BESIDE_WINDOW,
    FULL,
    NIXL,
    PROMPTS,
    PROMPTS_WITH_STATES,
    engine_of,
    explained,
    played,
    rules,
    saving_states,
)
from tests.connectors.test_mistakes_of_vllm import PLANTED
from tests.cover import others_nightly


def test_no_mode_of_states_is_driven_that_this_vllm_refuses() -> None:
    found = PlanSearch()
    kinds = [each for each in layouts(several=True) if "mamba" in each.traits]
    made = accepted(SHIPPED["offloading"].subject, found, kinds)
    assert made
    assert any(each.every_state for each in made) == adapt.keeps_every_state()
    assert not found.unmade


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


def test_a_reader_sees_the_options_of_a_plan_and_who_is_started_again() -> None:
    options = (("save_decode_cache", True),)
    plan = ConnectorPlan(engine_of(), (*AGAIN, Restart("dtype")), options=options)
    first, *_, last = lines(plan)
    assert "save_decode_cache True" in first
    assert last.endswith("another type of values")


def test_two_requests_that_are_aborted_together_end_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """vLLM reads the requests of one call from a set, whose order depends on the seed of hashes."""
    ended: list[Any] = []
    finish = Scheduler.finish_requests

    def noted(self: Any, names: Any, *args: Any, **kwargs: Any) -> Any:
        ended.append(names)
        return finish(self, names, *args, **kwargs)

    monkeypatch.setattr(Scheduler, "finish_requests", noted)
    actions = *PROMPTS, RunSteps(), AbortRequest(1), AbortRequest(0)
    assert not played("simple-cpu", *actions, engine=engine_of(steps_in_flight=2)).findings
    assert [each for each in ended if each] == [["r1"], ["r0"]]


def test_replicas_share_an_instance_that_no_other_process_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Files in shared memory have its name: base and head would have the same ones."""
    names, make = set[str](), Scheduler.__init__

    def made(self: Any, vllm_config: Any, *rest: Any, **more: Any) -> None:
        names.add(vllm_config.instance_id)
        make(self, vllm_config, *rest, **more)

    monkeypatch.setattr(Scheduler, "__init__", made)
    played("offloading", AGAIN[0], replicas=True)
    assert names == {f"kvproof-{os.getpid()}"}


def test_a_file_in_shared_memory_that_stays_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[Any] = []
    clean: Any = SharedOffloadRegion.cleanup
    monkeypatch.setattr(SharedOffloadRegion, "cleanup", lambda self: left.append(self))
    assert rules(played("offloading-files", AGAIN[0])) == {"closed_at_shutdown"}
    for region in left:
        clean(region)


# The connector that saves hidden states


@pytest.mark.nightly
def test_all_cache_groups_are_driven_with_hidden_states() -> None:
    assert accepted(STATES, PlanSearch()) == list(drawn.HIDDEN)
    assert as_driven(STATES.name, {}, keeps_prompts=False) == STATES


def test_a_connector_that_only_saves_is_judged() -> None:
    found = search(STATES, 5, 0)
    assert not found.nothing_judged
    assert "saved hidden states" in " ".join(shown(STATES, found))


def test_a_file_of_another_form_is_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    save: Any = example_hidden_states_connector.save_file

    def renamed(tensors: dict[str, Any], filename: str) -> None:
        save({f"new_{name}": each for name, each in tensors.items()}, filename)

    monkeypatch.setattr(example_hidden_states_connector, "save_file", renamed)
    with pytest.raises(AdapterDrift, match="has no hidden_states"):
        played("hidden-states", *PROMPTS_WITH_STATES, **saving_states(drawn.HIDDEN[0]))


# The memory that a connector gets


@pytest.mark.parametrize("name", ["offloading", "mooncake-store", *NIXL])
@pytest.mark.parametrize("groups", [FULL, BESIDE_WINDOW], ids=len)
def test_without_a_prefix_cache_all_comes_from_the_connector(name: str, groups: Any) -> None:
    """With one, it has the second prompt itself."""
    twice = (SubmitRequest(0, 14), Drain(), SubmitRequest(0, 14))
    promised = {}
    for caching in (True, False):
        engine = engine_of(groups, 64, prefix_caching=caching)
        found = played(name, *twice, engine=engine)
        assert not found.findings
        promised[caching] = found.judged["promised tokens"]
    assert promised[False] > promised[True]


def test_connectors_get_the_blocks_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = next(each for each in layouts(several=False) if each.kernel_blocks > 1)
    got: list[int] = []
    register: Any = SimpleCPUOffloadConnector.register_kv_caches

    def registered(self: Any, caches: dict[str, Any]) -> None:
        got.extend(len(each) for each in caches.values())
        register(self, caches)

    monkeypatch.setattr(SimpleCPUOffloadConnector, "register_kv_caches", registered)
    engine = engine_of(layers.engine.groups, 48)
    played("simple-cpu", *AGAIN, engine=engine, kernel_blocks=layers.kernel_blocks)
    assert got == [48 * layers.kernel_blocks] * 2


def test_a_forward_pass_that_fails_leaves_no_step_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(ExampleConnector, "save_kv_layer", fails)
    later: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", later.append)
    [finding] = played("example", *AGAIN, first_runner=True).findings
    assert "no room" in str(finding.reasons)
    gc.collect()
    assert not later


def test_all_layers_lie_in_a_block_where_vllm_has_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in older releases: vLLM allocates one tensor, and the connector gets it."""
    connector, given = OffloadingConnector, []

    def one_group(groups: list[list[AttentionGroup]]) -> bool:
        return len(groups) == len(groups[0]) == 1

    def allocate(
        config: KVCacheConfig, groups: list[list[AttentionGroup]], *_: object
    ) -> tuple[dict[str, torch.Tensor], torch.Tensor, object]:
        [[attention]] = groups
        spec, names = attention.kv_cache_spec, attention.layer_names
        page = spec.page_size_bytes // 4
        whole = torch.zeros(config.num_blocks, len(names), page)
        shape = -1, spec.num_kv_heads, spec.block_size, page // spec.num_kv_heads // spec.block_size
        named = {name: whole[:, at].view(shape) for at, name in enumerate(names)}
        given.append(named)
        return named, whole, attention.backend

    def register(self: OffloadingConnector, whole: torch.Tensor, _backend: object) -> None:
        [named] = given
        assert {each.untyped_storage().data_ptr() for each in named.values()} == {whole.data_ptr()}
        self.register_kv_caches(named)

    mixin = KVConnectorModelRunnerMixin
    monkeypatch.setattr(mixin, "use_uniform_kv_cache", staticmethod(one_group), raising=False)
    monkeypatch.setattr(mixin, "allocate_uniform_kv_caches", staticmethod(allocate), raising=False)
    monkeypatch.setattr(connector, "register_cross_layers_kv_cache", register, raising=False)
    found = played("offloading", *AGAIN, engine=engine_of(num_blocks=64), first_runner=True)
    assert not found.findings
    assert found.judged["promised tokens"]
    assert found.judged["workers with all layers in a block"]


# Settings that a user may add: half of the plans have some


ENGINE = engine_of(num_blocks=64)
TWICE = (SubmitRequest(0, 14, 4), Drain(), ResetCache(), SubmitRequest(0, 14, 4))


def test_options_that_are_refused_are_said() -> None:
    no_path = (("kv_offload_backend", "disk"),)
    plan = ConnectorPlan(ENGINE, TWICE, options=no_path)
    with pytest.raises(RefusedPlan, match="requires disk_path to be set"):
        play(SIMPLE, plan)
    only_these = dataclasses.replace(SIMPLE, options=(no_path,))
    found = search(only_these, 10, 0, shrinks=False)
    [(why, plans)] = found.unplayed.items()
    assert found.episodes > 0
    [line] = [each for each in shown(only_these, found) if each.startswith("Not played: ")]
    assert line.startswith(f"Not played: {plans} plan")
    assert line.endswith(f". {why}.")
    one = Play("one", "simple-cpu", plan)
    with pytest.raises(AdapterDrift, match="options of this plan are refused"):
        side_plans.driven(one)


def test_what_is_missing_without_options_too_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(*_: object) -> None:
        raise AdapterDrift("This vLLM has no x")

    monkeypatch.setattr(observed, "Owners", lacks)
    with pytest.raises(AdapterDrift, match="has no x"):
        play(SIMPLE, ConnectorPlan(ENGINE, TWICE, options=ON_DISK))


def test_a_mistake_behind_an_option_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load from a file takes the blocks in the wrong order."""
    load = DiskBackend._do_load

    def wrong(self: DiskBackend, slots: list[int], blocks: list[int], stream: object) -> None:
        load(self, slots[::-1], blocks, stream)

    monkeypatch.setattr(DiskBackend, "_do_load", wrong)
    of_disk = dataclasses.replace(SIMPLE, options=(ON_DISK,))
    found = search(of_disk, 200, 0, shrinks=False, known=explained(SIMPLE))
    assert found.rule == "promised_tokens_are_loaded"
    assert found.played is not None
    assert found.played.plan.options == ON_DISK


# Prompts of each kind


MIXED = pytest.mark.skipif(
    not adapt.mixes_embeddings(), reason="a prompt of this vLLM mixes nothing"
)
"""Of prompts that mix token ids and embeddings."""

NAMES = "offloading-roomy", "mooncake-store", "nixl-pull"


@MIXED
def test_a_vllm_without_such_prompts_leaves_these_plans_out_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adapt, "mixes_embeddings", lambda: False)
    prompts = (SubmitRequest(0, 14, 2, rows=rows) for rows in (Rows(0, 8), None))
    plans = [ConnectorPlan(engine_of(), (prompt, Drain(), prompt)) for prompt in prompts]
    with pytest.raises(RefusedPlan, match="token ids or embeddings, and not both"):
        play(SHIPPED[NAMES[0]].subject, plans[0])
    left, played = side_plans.driven(Plays("plans", NAMES[0], plans=tuple(plans))).records
    assert left == Record() != played


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


@MIXED
@pytest.mark.parametrize("name", others_nightly(SHIPPED, [*NAMES, "images"]))
def test_each_connector_is_drawn_with_each_feature_of_a_request(name: str) -> None:
    found: set[str] = set()

    def take(plan: ConnectorPlan) -> None:
        requests = [each for each in plan.actions if isinstance(each, SubmitRequest)]
        found.update(what for what, has in FEATURES.items() if any(map(has, requests)))
        if found == FEATURES.keys():
            raise RuleBroken  # there is nothing more to find

    with suppress(RuleBroken):
        drawn.draw_plans(SHIPPED[name].subject, layouts(several=True)[:1], 200, 0, take)
    assert found == FEATURES.keys() - NOT_DRAWN.get(name, set())


@MIXED
def test_no_image_is_uncut_where_steps_end_at_the_ends_of_blocks() -> None:
    """vLLM refuses `disable_chunked_mm_input` for such an engine."""
    taken: list[ConnectorPlan] = []
    drawn.draw_plans(SHIPPED["images"].subject, layouts(several=True), 100, 0, taken.append)
    uncut = [any(group.aligned for group in e.engine.groups) for e in taken if e.uncut]
    assert uncut
    assert not any(uncut)


# Lost performance: a block that is not stored, or not found


OFFERED = "stored_prefix_is_offered"


@pytest.mark.parametrize(("planted", "seeds"), [(False, 1), (True, 5)])
def test_random_plans_of_the_gate_show_a_block_that_is_not_stored_and_no_other(
    planted: bool, seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 60 plans, one seed in eight to one in four does not show it."""
    if planted:
        PLANTED["a block is not stored"].patch(monkeypatch)
    asked = (Plays("plans", "offloading-roomy", seed, 60) for seed in range(seeds))
    breaks = chain.from_iterable(side_plans.driven(each).breaks for each in asked)
    assert any(each.signature.check == OFFERED for each in breaks) is planted


@pytest.mark.parametrize(
    ("plan", "asked", "excused"),
    [
        (ConnectorPlan(engine_of(), AGAIN), 1, 0),
        (ConnectorPlan(engine_of(), (SubmitRequest(0, 14), SubmitRequest(0, 14), Drain())), 0, 0),
        (ConnectorPlan(engine_of(), (*AGAIN[:2], ResetCache(connector=True), *AGAIN[3:])), 0, 1),
        (ConnectorPlan(engine_of(), (*AGAIN[:2], Forget(), *AGAIN[2:])), 0, 1),
        (ConnectorPlan(engine_of(), (*AGAIN[:2], Forget(part=True), *AGAIN[2:])), 0, 1),
    ],
    ids=["kept", "not yet stored", "reset", "forgotten", "forgotten in part"],
)
def test_a_prompt_is_expected_that_ended_and_was_not_forgotten(
    plan: ConnectorPlan, asked: int, excused: int
) -> None:
    result = play(SHIPPED["mooncake-store"].subject, plan)
    assert result.findings == ()
    assert (result.times_judged[OFFERED], result.excused[OFFERED]) == (asked, excused)
