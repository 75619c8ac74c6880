"""What a slot of the kit's memory is."""

import pytest

pytest.importorskip("vllm")

import torch

from kvproof.connectors.allocated import slots
from kvproof.live import build
from kvproof.model.config import Group

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
