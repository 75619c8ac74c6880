"""What a slot of the kit's memory is."""

import pytest

pytest.importorskip("vllm")

import torch

from kvproof.connectors import caches as caches_of_kit
from kvproof.connectors.allocated import slots
from kvproof.connectors.caches import Caches, LayerCache, Shards
from kvproof.connectors.numbers import Numbers
from kvproof.live import build
from kvproof.model.config import EngineConfig, Group

pytestmark = pytest.mark.live

PAGE_BYTES = 128


def test_a_state_ends_where_the_padding_of_its_page_begins() -> None:
    """A connector that copies a state without the padding has copied all of it."""
    spec = build.spec_of(Group("mamba", 4), page_bytes=PAGE_BYTES)
    pages = torch.zeros(3, 1, 1, PAGE_BYTES, dtype=torch.int8)
    states = slots(pages, spec)
    assert states.shape[:2] == (3, 1)
    bytes_of_state = states[0].numel() * states.element_size()
    assert bytes_of_state == build.spec_of(Group("mamba", 4)).page_size_bytes < PAGE_BYTES
    pages[1, ..., bytes_of_state:] = 7
    assert not states.any()
    pages[1, ..., :bytes_of_state] = 7
    assert states[1].all()
    assert not states[[0, 2]].any()


def test_each_head_of_a_slot_has_its_own_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot that has one head twice does not hold its tokens."""
    memory = torch.zeros(3, 2, 4, 4)
    monkeypatch.setattr(caches_of_kit, "allocated", lambda *_: {"layers.0.attn": memory})
    cfg = EngineConfig("E", (Group("full", 4),), num_blocks=3)
    caches = Caches(
        build.kv_cache_config(cfg, of_rank=build.OfRank(2)), None, Numbers(), Shards(0, 1, 2)
    )
    layer = caches.layers[0]
    caches.write(layer, 1, 2, "abc")
    assert caches.found(layer, 1, 2) == "abc"
    first, second = layer.now[1, 2].chunk(2, dim=-2)
    assert not (first == second).any()
    second.copy_(first)
    assert caches.found(layer, 1, 2) is None


@pytest.mark.parametrize("block", range(3))
@pytest.mark.parametrize("offset", range(4))
def test_a_block_may_be_several_blocks_of_a_kernel(block: int, offset: int) -> None:
    memory = torch.zeros(6, 2, 1, 4)
    layer = LayerCache("layer", 0, memory, memory, parts=2)
    memory[layer.place(block, offset)] = 1
    assert memory[layer.whole(block)].flatten(0, 1)[offset].all()
    assert memory.count_nonzero() == 4
    assert layer.slot(*layer.place(block, offset)) == (block, offset)
