"""What a slot of the kit's memory is."""

from itertools import accumulate

import pytest
import torch

from kvproof.live import build
from kvproof.live.connectors.caches import NUMBERS_MAX, Numbers, slots
from kvproof.model.config import Group

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


def test_a_prefix_has_the_same_number_in_every_process() -> None:
    """A store that outlives its engine still has the KV of its tokens."""
    one, other = Numbers(), Numbers()
    prefixes = [*accumulate("abcdefgh")]
    pairs = [(f"layers.{layer}.attn", prefix) for layer in range(2) for prefix in prefixes]
    first = [one.of(*pair) for pair in pairs]
    assert [other.of(*pair) for pair in reversed(pairs)] == first[::-1]
    assert len({*first}) == len(pairs)
    assert [one.home(float(number)) for number in first] == pairs
    assert one.prefix("layers.1.attn", first[0]) is None


def test_two_prefixes_never_have_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvproof.live.connectors.caches.crc32", lambda _: NUMBERS_MAX - 2)
    numbers = Numbers()
    assert [numbers.of("layer", prefix) for prefix in "abc"] == [NUMBERS_MAX - 1, 1, 2]
    assert [numbers.prefix("layer", number) for number in (1.0, 2.0)] == ["b", "c"]
    assert [numbers.prefix("layer", number) for number in (3.0, 0.5)] == [None, None]
