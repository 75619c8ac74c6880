"""Mistakes planted in vLLM's own code: the kit names each, those of which no connector has a part
with a connector that stores nothing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

pytest.importorskip("vllm")

from vllm.distributed.ec_transfer.ec_connector.example_connector import ECExampleConnector
from vllm.v1 import outputs
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_offload.tiering.manager import TieringOffloadingManager
from vllm.v1.kv_offload.tiering.obj.manager import ObjectStoreSecondaryTierManager
from vllm.v1.simple_kv_offload.copy_backend import DmaCopyBackend
from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler

from kvproof.connectors.episode import play
from kvproof.connectors.plan import (
    ConnectorPlan,
    Drain,
    Fail,
    Image,
    ResetCache,
    RunSteps,
    SubmitRequest,
)
from kvproof.connectors.search import search
from kvproof.connectors.shipped import (
    ENCODING,
    FILES,
    IMAGES,
    OBJECTS,
    OFFLOADING,
    SIMPLE,
    SIMPLE_ROOMY,
    STORED_IMAGES,
)
from kvproof.connectors.subject import TestedConnector
from kvproof.model.config import EngineConfig, Group

pytestmark = pytest.mark.live

EPISODES = 60
SEEDS = (1, 2, 3)


def free_before_the_step(patch: pytest.MonkeyPatch) -> None:
    """An image is free as soon as its room is taken."""
    allocate: Any = EncoderCacheManager.allocate

    def freed(self: Any, request: Any, input_id: int) -> None:
        allocate(self, request, input_id)
        self.free_encoder_input(request, input_id)

    patch.setattr(EncoderCacheManager, "allocate", freed)


def counts_a_token_more(patch: pytest.MonkeyPatch) -> None:
    """An image takes a token more than it has."""
    allocate: Any = EncoderCacheManager.allocate

    def more(self: Any, request: Any, input_id: int) -> None:
        allocate(self, request, input_id)
        self.num_free_slots -= 1

    patch.setattr(EncoderCacheManager, "allocate", more)


def one_file_for_all_images(patch: pytest.MonkeyPatch) -> None:
    """Images of one length have one file."""
    named: Any = ECExampleConnector._generate_filename_debug

    def same(self: Any, mm_hash: str) -> Any:
        return named(self, mm_hash[1:])

    patch.setattr(ECExampleConnector, "_generate_filename_debug", same)


def hits_are_recorded_twice(patch: pytest.MonkeyPatch) -> None:
    """The statistics count each request again."""
    record: Any = KVCacheManager.record_prefix_cache_stats

    def twice(self: Any, *arguments: Any) -> None:
        record(self, *arguments)
        record(self, *arguments)

    patch.setattr(KVCacheManager, "record_prefix_cache_stats", twice)


def every_prompt_is_looked_up(patch: pytest.MonkeyPatch) -> None:
    """A prompt that must be computed whole is looked up like others."""
    patch.setattr(
        KVCacheManager, "prefix_cache_lookup_enabled", lambda self, _: self.enable_caching
    )


def key_without_salt(patch: pytest.MonkeyPatch) -> None:
    """A block of the engine's own cache has a key of its tokens alone."""
    patch.setattr(
        kv_cache_utils,
        "generate_block_hash_extra_keys",
        lambda _request, _start, _end, image: (None, image),
    )


def drops_what_it_has(patch: pytest.MonkeyPatch) -> None:
    """What was evicted early in a step is dropped, also if it was computed again in it."""

    def freed(self: Any) -> list[str]:
        dropped, self.freed = self.freed, []
        return list(dropped)

    patch.setattr(EncoderCacheManager, "get_freed_mm_hashes", freed)


def store_does_not_wait(patch: pytest.MonkeyPatch) -> None:
    """A store begins at once, beside the step that computes its blocks."""
    launch: Any = DmaCopyBackend.launch_copy

    def at_once(self: Any, *arguments: Any, **more: Any) -> None:
        launch(self, *arguments, **{**more, "wait_event": None})

    patch.setattr(DmaCopyBackend, "launch_copy", at_once)


class Forgetful(set[int]):
    """What is in it is not found."""

    def __contains__(self, _one: object) -> bool:
        return False


def stores_under_way_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A block is stored again while it is stored, because another request has it too."""
    make: Any = SimpleCPUOffloadScheduler.__init__

    def made(self: Any, *arguments: Any, **more: Any) -> None:
        make(self, *arguments, **more)
        self._in_flight_store_gpu_blocks = Forgetful()

    patch.setattr(SimpleCPUOffloadScheduler, "__init__", made)


def ends_are_kept_from_tiers(patch: pytest.MonkeyPatch) -> None:
    """The tiers behind the first one are not notified of ends."""
    patch.setattr(TieringOffloadingManager, "_maybe_finalize_request", lambda *_: None)


def key_without_place(patch: pytest.MonkeyPatch) -> None:
    """A block has the name of an image in its key, and not where the image begins (vllm#36708)."""
    made: Any = kv_cache_utils._gen_mm_extra_hash_keys

    def names(*given: Any) -> Any:
        keys, image = made(*given)
        return [key[:2] if isinstance(key, tuple) else key for key in keys], image

    patch.setattr(kv_cache_utils, "_gen_mm_extra_hash_keys", names)


def parts_of_two_lookups(patch: pytest.MonkeyPatch) -> None:
    """Of a prompt that was looked up again, the tokens that a connector has now count, and not
    those of the look-up whose own tokens count (vllm#37460)."""
    allocate: Any = KVCacheManager.allocate_slots

    def mixed(self: Any, request: Any, *given: Any, **more: Any) -> Any:
        blocks = allocate(self, request, *given, **more)
        external = more.get("num_external_computed_tokens")
        if blocks is not None and external is not None and request.prefill_stats is not None:
            request.prefill_stats.num_external_cached_tokens = external
        return blocks

    patch.setattr(KVCacheManager, "allocate_slots", mixed)


class Planted(NamedTuple):
    """A mistake, the check that names it, and what is driven."""

    rule: str
    plant: Callable[[pytest.MonkeyPatch], None]
    subject: TestedConnector = IMAGES


PLANTED = (
    Planted("encoder_output_is_there", free_before_the_step),
    Planted("encoder_room_adds_up", counts_a_token_more),
    Planted("encoder_output_is_its_own", one_file_for_all_images, STORED_IMAGES),
    Planted("statistics_count_once", hits_are_recorded_twice),
    Planted("recomputed_prompt_is_not_reused", every_prompt_is_looked_up),
    Planted("request_reads_its_own_tokens", key_without_salt),
    Planted("copies_follow_the_model", store_does_not_wait, SIMPLE),
    Planted("copies_are_made_once", stores_under_way_are_forgotten, SIMPLE_ROOMY),
    Planted("tier_is_notified_of_the_end", ends_are_kept_from_tiers, FILES),
    Planted("request_reads_its_own_tokens", key_without_place),
    Planted("prompt_statistics_add_up", parts_of_two_lookups, OFFLOADING),
)


@pytest.mark.parametrize("each", PLANTED, ids=lambda each: each.rule)
def test_a_mistake_of_vllm_is_named(each: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    each.plant(monkeypatch)
    named: set[str] = set()
    for seed in SEEDS:
        found = search(each.subject, EPISODES, seed, shrinks=False)
        findings = found.result.findings if found.result else ()
        named |= {*found.tolerated, *(finding.invariant for finding in findings)}
        if each.rule in named:
            return
    pytest.fail(f"named were {named}")


def test_an_image_that_is_dropped_and_computed_again_in_a_step_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def one(which: int) -> SubmitRequest:
        return SubmitRequest(0, 8, images=(Image(which, 1, 3),))

    engine = EngineConfig("E", (Group("full", 4),), num_blocks=32, chunk_tokens=64)
    # There is room for two of the three images, and a step computes the third and the first.
    actions = (one(0), Drain(), one(1), Drain(), ResetCache(), one(2), one(0), RunSteps())
    plan = ConnectorPlan(engine, actions, encoder_tokens=6)
    assert not play(IMAGES, plan).findings
    drops_what_it_has(monkeypatch)
    named = [finding.invariant for finding in play(IMAGES, plan).findings]
    assert named == ["encoder_drops_what_it_gave_up"]


def test_a_request_that_ends_before_its_image_is_encoded_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = EngineConfig("E", (Group("full", 4),), num_blocks=32, chunk_tokens=4)
    request = SubmitRequest(0, 12, max_tokens=1, images=(Image(0, 6, 3),))
    plan = ConnectorPlan(engine, (request, Drain()), encoder_tokens=6)
    right = play(ENCODING, plan)
    assert not right.findings
    assert right.judged["requests that were encoded"] == 1
    made: Any = outputs.make_empty_encoder_model_runner_output

    def sampled(step: Any) -> Any:
        output = made(step)
        return replace(output, sampled_token_ids=[[0] for _ in output.req_ids])

    # The output of a step had a token for each request (vllm#50275).
    monkeypatch.setattr(outputs, "make_empty_encoder_model_runner_output", sampled)
    named = [finding.invariant for finding in play(ENCODING, plan).findings]
    assert named[:1] == ["encoder_instance_encodes_all"]


def test_what_an_agent_raises_at_the_end_of_a_copy_ends_no_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = EngineConfig("E", (Group("full", 4),), num_blocks=24, chunk_tokens=64)
    plan = ConnectorPlan(engine, (SubmitRequest(0, 14), Fail(2, raises=True)))
    assert not play(OBJECTS, plan).findings
    poll: Any = ObjectStoreSecondaryTierManager._poll_active_transfers

    def polled(self: Any) -> None:
        for each in self._transfers.values():
            self._agent.deregister_memory(each.files_desc)
        poll(self)

    # Nothing is caught (vllm#49947).
    monkeypatch.setattr(ObjectStoreSecondaryTierManager, "_poll_active_transfers", polled)
    assert [finding.invariant for finding in play(OBJECTS, plan).findings] == ["engine_survives"]
