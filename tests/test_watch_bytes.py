"""Checksums of blocks, and what is compared when. `tests/engine` does it with real engines."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

import torch

from kvproof.watch.bytes.entries import WatchedBlocks, WatchedLoad
from kvproof.watch.bytes.sums import Layers, Sums
from kvproof.watch.shape import Unknown

pytestmark = pytest.mark.live

BLOCKS, RATIO = 6, 2


def memory(seed: int) -> Any:
    """A cache: kernel blocks, heads, tokens, content."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(BLOCKS * RATIO, 3, 4, 16, generator=generator)


def layers(*caches: Any) -> Any:
    """The memory of one group with a layer for each cache, as a scheduler knows it."""
    names = [f"layer.{index}" for index, _ in enumerate(caches)]
    modules = {n: SimpleNamespace(kv_cache=c) for n, c in zip(names, caches, strict=True)}
    compiled = SimpleNamespace(static_forward_context=modules)
    pool = SimpleNamespace(blocks=[None] * BLOCKS)
    return Layers(
        SimpleNamespace(
            kv_cache_config=SimpleNamespace(kv_cache_groups=[SimpleNamespace(layer_names=names)]),
            vllm_config=SimpleNamespace(compilation_config=compiled),
            kv_cache_manager=SimpleNamespace(block_pool=pool),
        )
    )


def sums(held: Any, blocks: list[int]) -> list[int]:
    found: list[int] = Sums(held.of(0), blocks).result()
    return found


def test_each_changed_byte_changes_the_sum_of_its_block_alone() -> None:
    cache = torch.zeros(BLOCKS, 5, 3, dtype=torch.int8)  # 15 bytes: no whole words
    held = layers(torch.zeros(BLOCKS, 2, 8), (cache, torch.ones(BLOCKS, 4)))
    before = sums(held, list(range(BLOCKS)))
    for place in range(15):
        cache[3, place // 3, place % 3] = 1
        after = sums(held, list(range(BLOCKS)))
        assert [a != b for a, b in zip(before, after, strict=True)] == [n == 3 for n in range(6)]
        cache.zero_()
    assert sums(held, [3, 1, 3]) == [before[3], before[1], before[3]]


def test_the_sum_does_not_depend_on_the_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = memory(1)
    other = torch.zeros(4, 3, BLOCKS * RATIO, 20).permute(2, 1, 0, 3)[..., :16]
    other.copy_(plain)
    assert not other.is_contiguous()
    expected = sums(layers(plain), list(range(BLOCKS)))
    assert sums(layers(other), list(range(BLOCKS))) == expected
    monkeypatch.setattr("kvproof.watch.bytes.sums.BYTES_MAX", 1)
    assert sums(layers(other), list(range(BLOCKS))) == expected


@pytest.mark.parametrize("cache", [torch.tensor([]), None, torch.zeros(2, BLOCKS * 8)])
def test_memory_of_another_form_is_unknown(cache: Any) -> None:
    with pytest.raises(Unknown, match=r"layer\.0"):
        layers(cache)


class Watched:
    """Entries over one cache. `asked` counts the comparisons, `found` has what has changed."""

    def __init__(self, *, null: bool = False) -> None:
        self.cache = torch.zeros(BLOCKS, 4)
        self.times_judged: Counter[str] = Counter()
        self.found: list[tuple[int, str]] = []
        self.loaded: list[tuple[str, bool, list[int]]] = []
        self.entries = WatchedBlocks(
            layers(self.cache),
            lambda check: self.times_judged.update([check]),
            lambda entry, when: self.found.append((entry.block, when)),
            self._loaded,
            null=null,
        )

    def _loaded(self, load: Any) -> None:
        wrong = [entry.block for entry in load.wrong]
        self.loaded.append((load.request, load.whole, wrong))

    def load(self, blocks: dict[int, str], content: dict[int, int], **how: Any) -> None:
        """A step in which a connector fills blocks, by their keys, with some content."""
        self.entries.settle()
        for block, key in blocks.items():
            self.entries.enters(block, 0, 4, key)
        step = object()
        beside = how.get("beside", False)
        load = WatchedLoad("r", dict.fromkeys(blocks, 4), None if beside else step, whole=True)
        self.entries.loads_blocks(load)
        for block, value in content.items():
            self.cache[block] = value
        if how.get("overlaps"):  # the next step is scheduled before the output is there
            self.entries.settle()
            self.entries.compare(wait=True)
        self.entries.step_ends(step, how.get("failed", ()))
        self.entries.settle()
        self.entries.compare(wait=True)

    def step(self, enters: list[int], hits: list[int], writes: list[int]) -> None:
        """One step: blocks enter the cache, blocks are hit, and the worker writes."""
        self.entries.settle()
        for block in enters:
            self.entries.enters(block, 0, 4, f"key {block}")
        self.entries.scheduled((block, "r") for block in hits)
        for block in writes:
            self.cache[block] += 1
        self.entries.compare(wait=True)


def test_a_block_is_read_when_its_step_is_over() -> None:
    watched = Watched()
    watched.step([1, 2], [1], [1, 2])  # another request hits block 1 in the step that fills it
    watched.step([], [1, 2], [])
    assert (watched.found, watched.times_judged.total()) == ([], 2)
    watched.step([], [], [2])
    watched.step([], [1, 2], [])
    assert watched.found == [(2, "r hits it")]
    watched.step([], [2], [])  # it is reported once
    assert len(watched.found) == 1


def test_a_block_that_is_evicted_is_compared_and_forgotten() -> None:
    watched = Watched()
    watched.step([1, 2], [], [1, 2])
    watched.step([], [], [1])
    watched.entries.settle()
    watched.entries.leaves(1)
    watched.entries.leaves(2)
    watched.entries.scheduled([])
    watched.entries.compare(wait=True)
    assert watched.found == [(1, "it is evicted")]
    watched.step([], [1], [1])
    watched.step([], [1], [])
    assert len(watched.found) == 1


def test_tokens_that_are_computed_again_may_change_the_bytes() -> None:
    watched = Watched()
    watched.step([1], [], [1])
    watched.entries.settle()
    watched.entries.written(1)
    watched.cache[1] += 1
    watched.step([], [1], [])
    assert watched.found == []
    watched.step([], [1], [1])
    watched.step([], [1], [])
    assert watched.found == [(1, "r hits it")]


def test_the_null_block_is_read_beside_others() -> None:
    watched = Watched(null=True)
    watched.step([1], [], [1])
    watched.step([2], [1], [0])
    watched.step([], [1], [])
    assert watched.found == [(0, "it is read again")]


def computed() -> Watched:
    """Blocks 1 and 2 are computed, read and evicted; their content is 1 and 2."""
    watched = Watched()
    watched.step([1, 2], [], [1, 2, 2])
    watched.step([], [], [])
    for block in (1, 2):
        watched.entries.leaves(block)
    watched.entries.scheduled([])
    watched.entries.compare(wait=True)
    watched.times_judged.clear()
    return watched


KEYS = {3: "key 1", 4: "key 2"}
HOW = ({}, {"beside": True}, {"overlaps": True})


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("content", "wrong"), [({3: 1, 4: 2}, []), ({3: 2, 4: 1}, [3, 4])])
def test_a_load_brings_back_what_was_computed(
    content: dict[int, int], wrong: list[int], how: dict[str, Any]
) -> None:
    watched = computed()
    watched.load(KEYS, content, **how)
    assert watched.loaded == [("r", True, wrong)]
    assert watched.times_judged == {"loaded_bytes_were_computed": 2}
    watched.entries.leaves(3)
    watched.load({3: "key 1"}, {3: 2})  # wrong bytes are not learned
    assert watched.loaded[1:] == [("r", True, [3])]


def test_what_was_not_computed_here_or_not_read_is_trusted() -> None:
    watched = computed()
    watched.load({3: "key 1", 4: "key 9"}, {3: 1, 4: 5})
    assert watched.loaded == [("r", False, [])]
    watched.entries.leaves(3)
    watched.entries.enters(1, 0, 4, "key 1")
    watched.entries.reset()  # a store may have what nobody has read
    watched.load({3: "key 1"}, {3: 6})
    assert watched.loaded[1:] == [("r", False, [])]


@pytest.mark.parametrize("how", HOW[::2])
def test_a_load_that_fails_is_not_judged(how: dict[str, Any]) -> None:
    watched = computed()
    watched.load(KEYS, {3: 9, 4: 9}, failed=[3, 4], **how)
    assert watched.loaded == [("r", False, [])]
    for block in KEYS:
        watched.entries.leaves(block)
    watched.load(KEYS, {3: 9, 4: 9})  # nor learned
    assert watched.loaded[1:] == [("r", True, [3, 4])]


def test_what_changes_places_changes_the_sum() -> None:
    first, second = memory(1), memory(2)
    held = layers(first, second)
    assert len(set(sums(held, list(range(BLOCKS))))) == BLOCKS
    assert sums(layers(second, first), [1]) != sums(held, [1])
    before = sums(held, [1])
    first[2, 0, 0], first[2, 0, 1] = first[2, 0, 1].clone(), first[2, 0, 0].clone()
    assert sums(held, [1]) != before


def test_each_bytes_that_a_key_had_are_right() -> None:
    watched = computed()
    watched.entries.settle()
    watched.entries.enters(1, 0, 4, "key 1")
    watched.cache[1] = 7
    watched.step([], [], [])
    for value, wrong in ((1, []), (7, []), (2, [3])):
        watched.load({3: "key 1"}, {3: value})
        assert watched.loaded.pop() == ("r", True, wrong)
        watched.entries.leaves(3)
