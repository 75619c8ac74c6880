"""Whose KV a slot holds, in words."""

import pytest

from kvproof.invariants.slots import content
from kvproof.live.connectors.judging import mixed_up
from kvproof.model.because import reason
from kvproof.model.finding import Finding


@pytest.mark.parametrize(
    ("right", "found", "whose"),
    [
        ("salt:abc", "abc", "another salt's KV"),
        ("ab:c", "salt:ab:c", "another salt's KV"),
        ("lora:ab:c", "ab:c", "another adapter's KV"),
        ("lora:abc", "salt:abc", "another adapter's KV"),
        ("model:salt:abc", "model:abc", "another salt's KV"),
        ("model:abc", "abc", ""),
        ("ab:c", "ab", ""),
        ("salt:abc", "salt:abd", ""),
    ],
)
def test_what_differs_beside_the_tokens_is_named(right: str, found: str, whose: str) -> None:
    both = reason("", "", right=content(right), found=content(found))
    assert mixed_up(Finding("", (both,))) == whose
