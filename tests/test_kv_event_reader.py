"""The KV events of vLLM as reports."""

import pytest

from kvproof.model.config.extra_keys import written
from kvproof.model.kv_events import Cleared, Removed, Stored

pytestmark = pytest.mark.live


def test_events_are_read_in_order() -> None:
    from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored

    from kvproof.live.observer.kv_events import reports

    stored = BlockStored(
        block_hashes=[b"\x01\x02", 10],
        parent_block_hash=255,
        token_ids=[97, 98, 99, 100],
        block_size=2,
        lora_id=None,
        medium="GPU",
        lora_name=None,
        group_idx=1,
    )
    removed = BlockRemoved(block_hashes=[10, b"\x01\x02"], medium="GPU", group_idx=1)
    assert list(reports([stored, removed, AllBlocksCleared()])) == [
        Stored(1, "ff", "abcd", ("0102", "a")),
        Removed(1, "a"),
        Removed(1, "0102"),
        Cleared(),
    ]


def test_letters_are_those_of_the_prefix_beside_what_its_hash_covers_after_it() -> None:
    from kvproof.live.observer.listener import named

    keyed = written("abcd.", "salt")
    stored = Stored(0, "", "abcd", ("1", "2"), ("c", "."))
    prefixes = {(0, "1"): keyed[:3], (0, "2"): keyed}
    given = named(stored, prefixes)
    assert given == Stored(0, "", keyed[:4], (keyed[:3], keyed), (keyed[2], "."))
