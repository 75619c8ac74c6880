"""Reads vLLM's KV events, for the driver and for the sanitizer. A hash stands there as a text."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash

from kvproof.model.kv_events import Cleared, Removed, Report, Stored


def event_hash(block_hash: Any) -> str:
    """The text for a block hash of a request or of the hash map, as in the reports."""
    return _text(maybe_convert_block_hash(block_hash))


def reports(events: Iterable[Any]) -> Iterator[Report]:
    """The reports of these events, in order. Each prefix is the text of a hash, and each token is
    the character of its id."""
    for event in events:
        if isinstance(event, AllBlocksCleared):
            yield Cleared()
        elif isinstance(event, BlockRemoved):
            yield from (Removed(event.group_idx, _text(each)) for each in event.block_hashes)
        else:
            yield _stored(event)


def _stored(event: BlockStored) -> Stored:
    parent = event.parent_block_hash
    after = getattr(event, "lookahead_token_ids", None) or ()  # older releases have none
    return Stored(
        event.group_idx,
        "" if parent is None else _text(parent),
        _characters(event.token_ids),
        tuple(map(_text, event.block_hashes)),
        tuple(map(_characters, after)),
    )


def _characters(ids: Sequence[int]) -> str:
    return "".join(map(chr, ids))


def _text(value: Any) -> str:
    """vLLM shows hashes as bytes or as numbers of 64 bits."""
    return value.hex() if isinstance(value, bytes) else f"{value:x}"
