"""Mistakes planted in vLLM's own accounting, of which no connector has a part: the kit names each,
with a connector that stores nothing."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

pytest.importorskip("vllm")

from vllm.distributed.ec_transfer.ec_connector.example_connector import ECExampleConnector
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.core.kv_cache_manager import KVCacheManager

from kvproof.connectors.search import search
from kvproof.connectors.shipped import IMAGES, STORED_IMAGES
from kvproof.connectors.subject import TestedConnector

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


def key_without_place(patch: pytest.MonkeyPatch) -> None:
    """A block has the name of an image in its key, and not where the image begins (vllm#36708)."""
    made: Any = kv_cache_utils._gen_mm_extra_hash_keys

    def names(*given: Any) -> Any:
        keys, image = made(*given)
        return [key[:2] if isinstance(key, tuple) else key for key in keys], image

    patch.setattr(kv_cache_utils, "_gen_mm_extra_hash_keys", names)


class Planted(NamedTuple):
    """A mistake, the rule that names it, and what is driven."""

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
    Planted("request_reads_its_own_tokens", key_without_place),
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
